"""Inference: from kernel, likelihood and observations to posterior, log evidence and its gradient."""
