"""The truncated standard normal in arithmetic of many digits: textbook formulas, which cancel, with digits to spare."""

from __future__ import annotations

import mpmath as mp

__all__ = ["truncated_normal"]


def truncated_normal(a: float, b: float, digits: int = 150) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """Log mass, mean and variance of N(0, 1) cut to [a, b]; either end may be infinite."""
    if -b > a:  # the mass as a difference of two small tails
        log_mass, mean, var = truncated_normal(-b, -a, digits)
        return log_mass, -mean, var
    with mp.workdps(digits):
        low, high = mp.mpf(a), mp.mpf(b)
        beyond = mp.erfc(high / mp.sqrt(2)) / 2
        if low < 0:
            mass_outside = mp.erfc(-low / mp.sqrt(2)) / 2 + beyond
            log_mass = mp.log1p(-mass_outside)
            mass = 1 - mass_outside
        else:
            mass = mp.erfc(low / mp.sqrt(2)) / 2 - beyond
            log_mass = mp.log(mass)
        at_low, at_high = mp.npdf(low), mp.npdf(high) if mp.isfinite(high) else mp.mpf(0)
        mean = (at_low - at_high) / mass
        low_term = low * at_low if mp.isfinite(low) else mp.mpf(0)
        high_term = high * at_high if mp.isfinite(high) else mp.mpf(0)
        return log_mass, mean, 1 + (low_term - high_term) / mass - mean**2
