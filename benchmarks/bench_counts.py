"""Cost of one call of `tilted` for a year of hourly counts: CPU time, and in units of as many exponentials."""

import time
from collections.abc import Callable

import numpy as np

from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial, Poisson

N = 8_760
REPEATS = 7


def cpu(call: Callable[[], object]) -> float:
    call()
    best = np.inf
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    f = rng.normal(1.0, 0.8, N)
    exposure = np.where(rng.random(N) < 0.2, rng.random(N), 1.0)
    y = rng.poisson(exposure * np.exp(f)).astype(float)
    noise = rng.standard_normal(N)
    nodes = rng.standard_normal(31 * N)
    unit = cpu(lambda: np.exp(nodes))
    print(f"counts: tilted moments of {N:,} rows, mean count {y.mean():.1f}")
    print(f"unit: 31 x {N:,} exponentials, {unit * 1e3:.2f} ms")
    print(f"{'likelihood':<20}{'censored':>10}{'variance':>10}{'ms':>10}{'units':>8}")
    for likelihood in (Poisson(), NegativeBinomial(0.1)):
        for share in (0.0, 0.1, 1.0):
            censored = rng.random(N) < share
            obs = Observations(y, np.where(censored, np.inf, y), exposure)
            for variance in (0.05, 0.3, 1.0, 10.0):
                mean, var = f + np.sqrt(variance) * noise, np.full(N, variance)
                seconds = cpu(lambda lik=likelihood, o=obs, m=mean, v=var: lik.tilted(o, m, v))
                name = type(likelihood).__name__
                print(f"{name:<20}{share:>10.0%}{variance:>10}{seconds * 1e3:>10.1f}{seconds / unit:>8.0f}")
    q = np.array([0.05, 0.5, 0.95])
    for likelihood in (Poisson(), NegativeBinomial(0.1)):
        seconds = cpu(lambda lik=likelihood: lik.quantile(f, np.full(N, 0.05), q))
        print(f"{type(likelihood).__name__}: three quantiles of every row {seconds:.2f} s")


if __name__ == "__main__":
    main()
