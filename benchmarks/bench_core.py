"""The censored GP: evidence + gradient, a whole fit, its growth with n and its memory; ratios of one run."""

from __future__ import annotations

import sys
import time
import warnings

import _measure  # sets one BLAS thread, so it comes before NumPy
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from unmet import CensoredGP
from unmet.estimators._model import SEARCH_TOL
from unmet.evidence import Evaluation, maximise
from unmet.inference.dense import DenseProblem, infer, prepare
from unmet.inference.ep import Sites
from unmet.kernels import Kernel, Parameter, Periodic, SquaredExponential
from unmet.likelihoods import Gaussian, Observations

N = 640
YARDSTICK = 21.0  # CPU seconds of GPy 1.15's EP with BFGS on such a problem


def hourly(n: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hours with hour of day and weekday, a draw from SE + Periodic + noise, and labels: the largest were cut."""
    rng = np.random.default_rng(seed)
    t = np.arange(n, dtype=float)
    X = np.column_stack([t, t % 24, t // 24 % 7])
    truth = SquaredExponential(0.5, 30.0) + Periodic(24.0, 0.5, 1.0)
    f = np.linalg.cholesky(truth(X) + 1e-9 * np.eye(n)) @ rng.normal(size=n)
    y = 10 + 4 * (f + np.sqrt(0.1) * rng.normal(size=n))
    cap = np.quantile(y, 1 - share)
    return X, np.minimum(y, cap), y > cap


def model() -> Kernel:
    return SquaredExponential() + Periodic(period=24.0)


def prepared(n: int, share: float) -> tuple[Kernel, Gaussian, DenseProblem]:
    X, y, censored = hourly(n, share)
    y = (y - y.mean()) / y.std()
    kernel = (SquaredExponential(0.5, 20.0) + Periodic(24.0, 0.5, 1.0)).resolved(None, 3)
    noise = Gaussian(0.1)
    problem = prepare(X, Observations(y, np.where(censored, np.inf, y)), noise)
    infer(kernel, noise, problem)  # finds the lags, once
    return kernel, noise, problem


def path_of_a_fit(kernel: Kernel, noise: Gaussian, problem: DenseProblem) -> list[tuple[Kernel, Gaussian]]:
    """The models that a search for hyper-parameters evaluates, in its order."""
    seen: list[tuple[Kernel, Gaussian]] = []
    k = kernel.theta.size

    def objective(theta: np.ndarray, start: Sites | None) -> Evaluation[Sites]:
        seen.append((kernel.with_theta(theta[:k]), noise.with_theta(theta[k:])))
        result = infer(*seen[-1], problem, start)
        assert result.gradient is not None
        return Evaluation(result.log_z, result.gradient, result.sites)

    theta = np.append(kernel.theta, noise.theta)
    maximise(objective, [theta], np.column_stack([theta - 5, theta + 5]))
    return seen


def walk(path: list[tuple[Kernel, Gaussian]], problem: DenseProblem, *, warm: bool) -> tuple[np.ndarray, float]:
    """CPU time of each evaluation along a path, from the last one's sites or from nothing; mean number of sweeps."""
    sites, sweeps, times = None, 0, []
    for kernel, noise in path:
        start = time.process_time()
        result = infer(kernel, noise, problem, sites if warm else None, tol=SEARCH_TOL)
        times.append(time.process_time() - start)
        sites, sweeps = result.sites, sweeps + result.info.sweeps
    return np.array(times), sweeps / len(path)


def evidence() -> list[bool]:
    kernel, noise, censored = prepared(N, 0.3)
    exact = prepared(N, 0.0)[2]
    path = path_of_a_fit(kernel, noise, censored)
    A = np.array(np.eye(N) + 0.5, order="F")
    rounds: dict[str, list[np.ndarray]] = {"exact": [], "cold": [], "warm": [], "lapack": []}
    for _ in range(7):  # in turns, so that all see the same state of the machine
        rounds["exact"].append(walk(path, exact, warm=True)[0])
        by_nothing, cold_sweeps = walk(path, censored, warm=False)
        by_last, warm_sweeps = walk(path, censored, warm=True)
        rounds["cold"].append(by_nothing)
        rounds["warm"].append(by_last)
        start = time.process_time()
        dpotri(dpotrf(A, lower=1)[0], lower=1)
        rounds["lapack"].append(np.array([time.process_time() - start]))
    ms = {name: 1e3 * float(np.min(times, axis=0).mean()) for name, times in rounds.items()}
    print(f"evidence + gradient, n = {N}, 30 % censored, SE + Periodic on three columns: mean of a fit's {len(path)}")
    _measure.report("exact GP", ms["exact"], unit=" ms")
    _measure.report(f"censored GP, from nothing ({cold_sweeps:.1f} sweeps)", ms["cold"], unit=" ms")
    _measure.report(f"censored GP, from the last point's sites ({warm_sweeps:.1f} sweeps)", ms["warm"], unit=" ms")
    _measure.report("dpotrf + dpotri", ms["lapack"], unit=" ms")
    return [
        _measure.report("censored, from the last point's sites / exact", ms["warm"] / ms["exact"], 1.3, unit=" ×"),
        _measure.report("censored, from nothing / exact", ms["cold"] / ms["exact"], unit=" ×"),
        _measure.report(
            "censored, from the last point's sites / (dpotrf + dpotri)", ms["warm"] / ms["lapack"], 4.0, unit=" ×"
        ),
        _measure.report("censored, from nothing / (dpotrf + dpotri)", ms["cold"] / ms["lapack"], 4.0, unit=" ×"),
    ]


def whole_fit() -> list[bool]:
    X, y, censored = hourly(N, 0.3)
    print(f"whole fit, n = {N}, 30 % censored, SE + Periodic on three columns")
    start = time.process_time()
    gp = CensoredGP(model(), inference="dense").fit(X, y, censored=censored)
    seconds = time.process_time() - start
    _measure.report(f"CPU time of fit ({gp.n_iter_} evaluations)", seconds, unit=" s")
    reached = [gp.log_marginal_likelihood_]
    for variance, length, noise in ((0.3, 10.0, 0.3), (2.0, 50.0, 0.03), (1.0, 20.0, 1.0), (0.1, 100.0, 0.1)):
        kernel = SquaredExponential(variance, length) + Periodic(24.0, 1.0, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = CensoredGP(kernel, noise_variance=noise, inference="dense").fit(X, y, censored=censored)
        reached.append(other.log_marginal_likelihood_)
    print("  log evidence reached: " + ", ".join(f"{value:.3f}" for value in reached))
    return [
        _measure.report("21 s / CPU time of fit", YARDSTICK / seconds, 6.0, unit=" ×", least=True),
        _measure.report("spread of the evidence over 5 starts", float(np.ptp(reached)), 0.1, unit=" nat"),
    ]


def share_fit() -> list[bool]:
    """A whole fit of the learnt share over one of the Tobit model, on the same rows: labelled at random, half seen."""
    print(f"whole fit, n = {N}, labelled rows show Beta(4, 4) of the truth, SE + Periodic on three columns")
    ratios = []
    for labelled in (0.2, 0.4, 0.6):
        rng = np.random.default_rng(1)
        X, y, _ = hourly(N, 0.0)
        label = rng.random(N) < labelled
        seen = np.where(label, rng.beta(4, 4, N), 1.0) * y
        seconds = {}
        for censoring in ("model", "share"):
            start = time.process_time()
            CensoredGP(model(), censoring=censoring, inference="dense").fit(X, seen, label)
            seconds[censoring] = time.process_time() - start
        times = f"{seconds['share']:.2f} s / {seconds['model']:.2f} s"
        ratios.append(seconds["share"] / seconds["model"])
        _measure.report(f"{labelled:.0%} labelled, learnt share / Tobit: {times}", ratios[-1], unit=" ×")
    return [_measure.report("learnt share / Tobit, at most", max(ratios), 4.0, unit=" ×")]


def beside_sklearn() -> list[bool]:
    """The exact GP, nothing censored, beside scikit-learn's: same data, same kernel, same start, one BLAS thread."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as sk

    X, y, _ = hourly(N, 0.0)
    y = (y - y.mean()) / y.std()
    rng = np.random.default_rng(1)
    period = Parameter(24.0, fixed=True)
    ours = SquaredExponential(0.5, 20.0) + Periodic(period, 0.5, 1.0)
    wide = (1e-5, 1e5)
    theirs = (
        sk.ConstantKernel(0.5, wide) * sk.RBF(20.0, wide)
        + sk.ConstantKernel(0.5, wide) * sk.ExpSineSquared(1.0, 24.0, wide, "fixed")
        + sk.WhiteKernel(0.1, wide)
    )
    settings = {"noise_variance": 0.1, "normalize_y": False, "inference": "dense"}
    print(f"exact GP beside scikit-learn's, n = {N}, one column, SE + Periodic")
    met = []
    for name, t in (("hours", X[:, :1]), ("off any grid", X[:, :1] + rng.uniform(-0.5, 0.5, size=(N, 1)))):
        gp = CensoredGP(ours, optimizer=None, **settings).fit(t, y)
        sk_gp = GaussianProcessRegressor(theirs, alpha=0.0, optimizer=None).fit(t, y)
        values = [
            gp.log_marginal_likelihood(eval_gradient=True)[0],
            sk_gp.log_marginal_likelihood(sk_gp.kernel_.theta, eval_gradient=True, clone_kernel=False)[0],
        ]
        assert np.isclose(*values, rtol=1e-9), values
        times = [
            _measure.cpu_seconds(lambda gp=gp: gp.log_marginal_likelihood(eval_gradient=True), repeat=5),
            _measure.cpu_seconds(
                lambda g=sk_gp: g.log_marginal_likelihood(g.kernel_.theta, eval_gradient=True, clone_kernel=False),
                repeat=5,
            ),
        ]
        met.append(
            _measure.report(
                f"evidence + gradient, {name}: scikit-learn's / ours", times[1] / times[0], 1.0, least=True, unit=" ×"
            )
        )
        fits, reached = [], []
        for fit in (
            lambda t=t: CensoredGP(ours, **settings).fit(t, y).log_marginal_likelihood_,
            lambda t=t: GaussianProcessRegressor(theirs, alpha=0.0).fit(t, y).log_marginal_likelihood_value_,
        ):
            start = time.process_time()
            reached.append(fit())
            fits.append(time.process_time() - start)
        met.append(
            _measure.report(f"whole fit, {name}: scikit-learn's / ours", fits[1] / fits[0], 1.0, least=True, unit=" ×")
        )
        print(f"  log evidence reached: ours {reached[0]:.3f}, scikit-learn's {reached[1]:.3f}")
    return met


def growth() -> list[bool]:
    sizes = (500, 2000)
    times = []
    for n in sizes:
        parts = prepared(n, 0.3)
        times.append(_measure.cpu_seconds(lambda p=parts: infer(*p), repeat=3))
    exponent = float(np.diff(np.log(times))[0] / np.diff(np.log(sizes))[0])
    print("growth of evidence + gradient from n = 500 to 2,000")
    return [_measure.report("exponent", exponent, 3.0)]


def memory() -> list[bool]:
    n = 1000
    X, y, censored = hourly(n, 0.3)
    rng = np.random.default_rng(0)
    print(f"peak memory of a fit, n = {n}, in n² doubles")
    met = []
    for name, inputs in (("gridded inputs", X), ("inputs off any grid", X + rng.uniform(size=X.shape))):

        def fit(inputs: np.ndarray = inputs) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                CensoredGP(model(), inference="dense", max_iter=2).fit(inputs, y, censored=censored)

        met.append(_measure.report(name, _measure.peak_bytes(fit) / (8 * n**2), 12.0))
    return met


if __name__ == "__main__":
    met = [ok for part in (evidence, whole_fit, share_fit, beside_sklearn, growth, memory) for ok in part()]
    print(f"{sum(met)} of {len(met)} within their targets")
    sys.exit(0)
