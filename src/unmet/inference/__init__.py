"""From a kernel, a likelihood and observations to a posterior, its evidence and the gradient of that."""
