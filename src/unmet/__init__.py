"""Recover the demand that supply could not serve."""
