"""Demand models of zones and of the whole city."""
