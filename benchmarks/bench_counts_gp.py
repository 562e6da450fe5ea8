"""A year of hourly counts with exposure: one whole fit, one cold inference, growth with the years, memory."""

from __future__ import annotations

import _measure  # sets one BLAS thread, so it comes before NumPy
import numpy as np

from unmet import CensoredGP
from unmet.inference import lowrank
from unmet.inference.planning import plan
from unmet.kernels import Kernel, Parameter, Periodic, SquaredExponential
from unmet.likelihoods import NegativeBinomial, Observations

HOURS = 8_760


def demand(years: int, rng: np.random.Generator) -> tuple[np.ndarray, Observations]:
    """Daily and weekly rhythm, seasons; a fifth of the hours partly without bikes, one in twenty censored."""
    n = years * HOURS
    t = np.arange(float(n))
    f = 0.8 + 0.9 * np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(2 * np.pi * t / 168) + 0.5 * np.sin(2 * np.pi * t / HOURS)
    exposure = np.where(rng.random(n) < 0.2, rng.uniform(0.05, 1.0, n), 1.0)
    y = rng.poisson(exposure * np.exp(f) * rng.gamma(10.0, 0.1, n)).astype(float)
    censored = (rng.random(n) < 0.05) & (y > 0)
    return t[:, None], Observations(y, np.where(censored, np.inf, y), exposure)


def model(trend: float) -> Kernel:
    kernel = Periodic(Parameter(168.0, fixed=True), 1.0, 0.22) + SquaredExponential(0.5, trend)
    return kernel.resolved(None, 1)


def main() -> list[bool]:
    rng = np.random.default_rng(0)
    t, obs = demand(1, rng)
    likelihood, kernel = NegativeBinomial(0.1, log_level=0.8), model(700.0)
    block = plan(kernel, t, left_out=1e-3, budget=400)
    n, m = HOURS, block.size
    print(f"Counts with exposure, negative binomial: n = {n:,}, {m} features")
    problem = lowrank.prepare(t, obs, likelihood, block)
    cold = _measure.cpu_seconds(lambda: lowrank.infer(kernel, likelihood, problem), repeat=3)
    peak = _measure.peak_bytes(lambda: lowrank.infer(kernel, likelihood, problem, max_sweeps=4))
    # Whole years as long as one, features held: only the rows grow.
    longer, more = demand(4, rng)
    four = lowrank.prepare(longer % HOURS, more, likelihood, block)
    one_year, four_years = (
        _measure.cpu_seconds(lambda p=p: lowrank.infer(kernel, likelihood, p, max_sweeps=6, tol=0.0), repeat=4)
        for p in (problem, four)
    )
    gp = CensoredGP(model(700.0), likelihood="negative-binomial", inference="lowrank")
    censored = np.isinf(obs.upper)
    fit = _measure.cpu_seconds(lambda: gp.fit(t, obs.lower, censored, exposure=obs.exposure), repeat=1)
    print(f"  the fit took {gp.n_iter_} evaluations with {gp.features_['count'].sum()} features")
    return [
        _measure.report("one cold inference with gradient", cold, 0.5, unit=" s"),
        _measure.report("one whole fit", fit, 10.0, unit=" s"),
        _measure.report("four years over four times one year", four_years / (4 * one_year), 1.2),
        _measure.report("memory of one inference, in arrays of n × m doubles", peak / (8.0 * n * m), 6.0),
    ]


if __name__ == "__main__":
    met = main()
    print(f"{sum(met)} of {len(met)} within their targets")
