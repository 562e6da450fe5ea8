"""Covariates of bins: calendar, holidays, daylight and weather."""
