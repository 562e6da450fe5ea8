"""Twenty simulated hourly years with known demand: do intervals cover the truth, and is the mean rate right? Checked.

The log-rate is drawn from the model's own prior (a weekly pattern and a slow trend). Riders come at random times of the
hour; bikes may run out, sooner where demand is high. Of most such hours it is known when the last bike went: that is
exposure. Of some only that it happened: those are censored. Hyper-parameters are learnt from each year.
"""

from __future__ import annotations

import sys
import time

import _measure  # sets one BLAS thread, so it comes before NumPy
import numpy as np

from unmet import CensoredGP
from unmet.kernels import Kernel, Parameter, Periodic, SquaredExponential

HOURS, YEARS, DISPERSION, LEVEL = 8_760, 20, 0.1, np.log(3.0)


def kernel() -> Kernel:
    return Periodic(Parameter(168.0, fixed=True), 0.5, 0.3) + SquaredExponential(0.2, 1000.0)


def true_log_rate(rng: np.random.Generator) -> np.ndarray:
    """A draw from the prior: exact on one week for what repeats, every twelfth hour and smooth between for the rest."""
    weekly, trend = kernel().leaves()
    week, coarse = np.arange(168.0)[:, None], np.arange(0.0, HOURS + 24, 12)[:, None]
    pattern = np.linalg.cholesky(weekly(week) + 1e-10 * np.eye(len(week))) @ rng.normal(size=len(week))
    slow = np.linalg.cholesky(trend(coarse) + 1e-8 * np.eye(len(coarse))) @ rng.normal(size=len(coarse))
    hours = np.arange(HOURS)
    return LEVEL + pattern[hours % 168] + np.interp(hours, coarse[:, 0], slow)


def served(f: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pickups, exposure and labels of a year: stock is random, so hours of high demand run out more often."""
    demand = rng.poisson(np.exp(f) * rng.gamma(1 / DISPERSION, DISPERSION, f.size))
    stock = rng.poisson(5.0, f.size) + 1
    ran_out = demand >= stock
    # The last bike goes with the rider of its number, among `demand` uniform times: a beta variable.
    until = np.where(ran_out, rng.beta(stock, np.where(ran_out, demand - stock + 1, 1)), 1.0)
    closed = rng.random(f.size) < 0.02
    label_only = ran_out & ~closed & (rng.random(f.size) < 0.1)
    exposure = np.where(closed, 0.0, np.where(label_only, 1.0, until))
    return np.where(closed, 0, np.minimum(demand, stock)), exposure, label_only


def one_year(seed: int) -> tuple[float, float, float, float, float]:
    """Coverage, error of the mean rate and its sd, both relative; error without exposure; share of demand unseen."""
    rng = np.random.default_rng(seed)
    t = np.arange(float(HOURS))[:, None]
    f = true_log_rate(rng)
    seen, exposure, censored = served(f, rng)
    rate = np.exp(f).mean()
    gp = CensoredGP(kernel(), likelihood="negative-binomial", inference="lowrank")
    gp.fit(t, seen, censored, exposure=exposure)
    low, high = np.log(gp.predict_quantiles(t, [0.025, 0.975], kind="latent")).T
    totals = gp.sample(t, 200, random_state=seed).mean(axis=1)
    naive = CensoredGP(kernel(), likelihood="negative-binomial", inference="lowrank").fit(t, seen)
    return (
        float(np.mean((low <= f) & (f <= high))),
        float(gp.predict(t).mean() / rate - 1),
        float(totals.std() / rate),
        float(naive.predict(t).mean() / rate - 1),
        float(1 - seen.mean() / rate),
    )


def main(years: int = YEARS) -> bool:
    start = time.process_time()
    rows = []
    for seed in range(years):
        rows.append(one_year(seed))
        shown = f"  year {seed + 1:>2} of {years}: covered {rows[-1][0]:.1%}, mean rate {rows[-1][1]:+.2%}"
        print(shown, end="\r", flush=True)
    covered, error, sd, naive, unseen = np.array(rows).T
    spread = float(np.sqrt(np.mean(np.square(sd)) / years))
    print(f"Known truth: {years} simulated hourly years, {unseen.mean():.0%} of demand unseen, ", end="")
    print(f"{time.process_time() - start:.0f} s of CPU")
    within = _measure.report("coverage of the log-rate by 95 % intervals, in %", 100 * covered.mean(), 94.0, least=True)
    within &= _measure.report("  and not above", 100 * covered.mean(), 96.0)
    within &= _measure.report("error of the mean rate, in its standard errors", abs(error.mean()) / spread, 2.0)
    _measure.report("  the same in %", 100 * error.mean())
    _measure.report("  error without exposure, in %", 100 * naive.mean())
    within &= _measure.report(
        "error without exposure, in standard errors", abs(naive.mean()) / spread, 10.0, least=True
    )
    return within


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else YEARS)
