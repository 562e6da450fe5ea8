"""Cost of the user dissatisfaction function: 600 stations, 24 hours, 200 draws; and the same by matrix exponentials."""

from __future__ import annotations

import time

import numpy as np
from scipy.linalg import expm

from unmet.decisions import expected_lost

STATIONS, HOURS, DRAWS, CAPACITY = 600, 24, 200, 20
TIMED = 20  # stations that are computed; the cost of a station does not depend on the others


def by_matrix_exponential(rentals: np.ndarray, returns: np.ndarray) -> None:
    """One scenario: an augmented generator per hour."""
    for mu, lam in zip(rentals, returns, strict=True):
        generator = np.diag(np.full(CAPACITY, lam), 1) + np.diag(np.full(CAPACITY, mu), -1)
        whole = np.zeros((CAPACITY + 3, CAPACITY + 3))
        whole[:-2, :-2] = generator - np.diag(generator.sum(axis=1))
        whole[0, -2], whole[CAPACITY, -1] = mu, lam
        expm(whole)


def main() -> None:
    generator = np.random.default_rng(0)
    day = 3 * (1 + np.sin(np.linspace(0, 2 * np.pi, HOURS)))
    rentals, returns = (day * generator.gamma(10.0, 0.1, (TIMED, DRAWS, HOURS)) for _ in range(2))
    began = time.process_time()
    for mu, lam in zip(rentals, returns, strict=True):
        expected_lost(mu, lam, CAPACITY)
    ours = (time.process_time() - began) / TIMED
    began = time.process_time()
    by_matrix_exponential(rentals[0, 0], returns[0, 0])
    theirs = (time.process_time() - began) * DRAWS
    print(f"dissatisfaction of {STATIONS} stations x {HOURS} h x {DRAWS} draws: {ours * STATIONS:.1f} s of CPU")
    print(f"  over matrix exponentials (SciPy): {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
