"""Exact GP regression and EP with full covariance matrices, for up to a few thousand rows.

An observation with a Gaussian likelihood is its own exact site. Inference conditions on those rows first (one Cholesky
factor) and runs EP on the others, under the remaining prior. Rows are ordered exact ones (``e``) first, others (``c``)
last. With ``D = diag(1, S^½)`` over the two groups, where S are the precisions of EP's sites, the factor

    ⎡ L        0   ⎤      L Lᵀ = K_ee + Σ_e,  B = L⁻¹ K_ec,  V = K_cc − BᵀB,
    ⎣ S^½ Bᵀ   L_c ⎦      L_c L_cᵀ = I + S^½ V S^½

is that of ``M = D (K + Σ̃) D``, and nothing is divided by a precision, which may be zero. Predictions need
``R = (K + Σ̃)⁻¹ = D M⁻¹ D`` (R&W eqs. 3.60, 3.61), the gradient of the evidence its contraction with ∂K
(R&W eq. 5.9 with sites held).

Sites of a likelihood that is not log-concave may have negative precisions −d, at rows N. S then holds zeros there, and
a correction of rank |N| follows (Woodbury): with Σ the posterior covariance under the other sites, the posterior is
proper if ``C Cᵀ = I − d^½ Σ_NN d^½`` has a Cholesky factor, and ``R = D M⁻¹ D − G Gᵀ``, ``G = R⁺_N d^½ C⁻ᵀ``, where
``R⁺_N`` are the columns N of ``(I + S V)⁻¹``, carried over to the exact rows by ``−L⁻ᵀ B``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg.blas import dsyr

from unmet._linalg import (
    cholesky,
    cholesky_jittered,
    gram_of_lower,
    inverse_lower,
    join_inverse,
    log_det,
    sample_gaussian,
    solve_lower,
)
from unmet._normal import LOG_SQRT_2PI
from unmet._typing import Array
from unmet.inference.ep import Marginals, Sites, expectation_propagation
from unmet.inference.result import Inference, Info
from unmet.kernels.base import Kernel
from unmet.kernels.pairs import Pairs, Weights
from unmet.likelihoods.base import Likelihood, Observations

__all__ = ["BlockFactor", "DensePosterior", "DenseProblem", "infer", "prepare"]

# A site is weak if its precision times the prior variance is below this. 1e-3 costs three of sixteen digits.
_WEAK = 1e-3


@dataclass(frozen=True)
class DenseProblem:
    """The part that does not change with hyper-parameters: rows ordered exact first, and the lags between them."""

    pairs: Pairs
    exact: Observations
    other: Observations


def prepare(X: Array, obs: Observations, likelihood: Likelihood) -> DenseProblem:
    """Order the rows and prepare the lags between them.

    Parameters
    ----------
    X : array of shape (n, d)
        Training inputs.
    obs : Observations
        Training observations.
    likelihood : Likelihood
        Determines which rows are exact.

    Returns
    -------
    DenseProblem
    """
    # The C library keeps freed memory for the next evaluation, up to twice the largest block freed so far (mallopt(3)).
    # Without this, every evaluation maps and zeroes its memory again: a sixth of its time at n = 640.
    np.empty(min(4 * len(X) ** 2, 4_000_000))
    exact, _, _ = likelihood.exact_sites(obs)
    order = np.argsort(~exact, kind="stable")
    return DenseProblem(Pairs(np.ascontiguousarray(X[order])), obs[exact], obs[~exact])


def infer(
    kernel: Kernel,
    likelihood: Likelihood,
    problem: DenseProblem,
    start: Sites | None = None,
    *,
    gradient: bool = True,
    tol: float = 1e-8,
    max_sweeps: int = 300,
) -> Inference:
    """Compute posterior, log evidence and its gradient at given hyper-parameters.

    Parameters
    ----------
    kernel, likelihood : Kernel, Likelihood
        The model; `kernel` resolved to column positions.
    problem : DenseProblem
        Result of `prepare`.
    start : Sites, optional
        Starting point of EP: the `sites` of an earlier result.
    gradient : bool
        Whether to compute the gradient.
    tol, max_sweeps : float, int
        Stopping criteria of EP.

    Returns
    -------
    Inference

    See Also
    --------
    unmet.inference.lowrank.infer : The same in weight space, for long series.
    """
    e = len(problem.exact)
    _, tau, nu = likelihood.exact_sites(problem.exact)
    L, B, V, jitter = _conditioned_on_exact(kernel, problem, 1.0 / tau)
    white = solve_lower(L, nu / tau)  # L⁻¹ y
    prior = _Conditioned(B.T @ white, V, (np.zeros(V.shape), np.zeros(V.shape)))
    ep = expectation_propagation(prior, likelihood, problem.other, start, tol=tol, max_sweeps=max_sweeps)
    log_z = -0.5 * float(white @ white) - 0.5 * log_det(L) - e * LOG_SQRT_2PI + ep.log_z

    assert isinstance(ep.posterior, _Conditional)
    alpha_c = ep.posterior.alpha
    alpha = np.concatenate([solve_lower(L, white - B @ alpha_c, transposed=True), alpha_c])
    G = ep.posterior.negative
    negative = np.concatenate([solve_lower(L, np.asfortranarray(-B @ G), transposed=True), G])
    factor = BlockFactor(L, B, ep.posterior.root, ep.posterior.factor, negative)
    posterior = DensePosterior(kernel, problem.pairs.X, alpha, factor)
    info = Info(ep.converged, ep.sweeps, ep.residual, jitter)
    if not gradient:
        return Inference(posterior, log_z, None, ep.sites, info)
    R = factor.inverse(ep.posterior.inverse)
    precision = np.diag(R)[:e].copy()
    by_kernel = -kernel.contract(problem.pairs, Weights(_evidence_weights(R, alpha)))
    exact = likelihood.exact_gradient(problem.exact, alpha[:e], precision)
    by_likelihood = exact.sum(axis=0) + ep.tilted.d_theta.sum(axis=0)
    return Inference(posterior, log_z, np.concatenate([by_kernel, by_likelihood]), ep.sites, info)


def _conditioned_on_exact(kernel: Kernel, problem: DenseProblem, noise: Array) -> tuple[Array, Array, Array, float]:
    """Return ``L``, ``B`` and ``V`` of the module's docstring, and the jitter added to L."""
    e = len(problem.exact)
    K = kernel.on(problem.pairs).matrix(len(problem.pairs)).T  # symmetric, so the transpose is in LAPACK's column order
    A = np.array(K[:e, :e], order="F")
    np.einsum("ii->i", A)[:] += noise
    L, jitter = cholesky_jittered(A) if e else (A, 0.0)
    B = solve_lower(L, K[:e, e:])
    return L, B, K[e:, e:] - B.T @ B, jitter


def _evidence_weights(R: Array, alpha: Array) -> Array:
    """Return ``F`` with ``Σ F ∘ ∂K = −½ tr((ααᵀ − R) ∂K)`` for symmetric ∂K. Overwrites R's lower triangle.

    Only the lower triangle is filled; off the diagonal it has twice the weight.
    """
    F = np.asarray(dsyr(-1.0, alpha, a=R, lower=1, overwrite_a=1))
    F.flat[:: len(F) + 1] *= 0.5
    return F


@dataclass(frozen=True)
class BlockFactor:
    """The factor of ``M = D (K + Σ̃) D`` by its blocks.

    Attributes
    ----------
    exact, cross, root, other : arrays of shapes (e, e), (e, c), (c,) and (c, c)
        ``L``, ``B``, the diagonal of ``S^½``, and ``L_c``.
    negative : array of shape (n, k)
        ``G``, one column per site of negative precision.
    """

    exact: Array
    cross: Array
    root: Array
    other: Array
    negative: Array

    def whiten(self, X: Array) -> tuple[Array, Array]:
        """``W, W₋`` with ``XᵀRX = WᵀW − W₋ᵀW₋``: the factor's inverse times ``D X``, and ``GᵀX``."""
        e = len(self.exact)
        first = solve_lower(self.exact, np.asfortranarray(X[:e]))
        rest = np.asfortranarray(self.root[:, None] * (X[e:] - self.cross.T @ first))
        return np.concatenate([first, solve_lower(self.other, rest)]), self.negative.T @ X

    def inverse(self, other_inverse: Array) -> Array:
        """Return the lower triangle of ``R = D M⁻¹ D``, with zeros above, given ``L_c⁻¹`` of EP's last sweep."""
        whitener = join_inverse(inverse_lower(self.exact), self.cross * self.root, other_inverse)
        whitener[len(self.exact) :, len(self.exact) :] *= self.root
        R = gram_of_lower(whitener)
        return np.tril(R - self.negative @ self.negative.T) if self.negative.size else R


@dataclass(frozen=True)
class _Conditional(Marginals):
    """Posterior of `_Conditioned` under given sites, with its factor."""

    kept: Array
    alpha: Array
    root: Array = field(kw_only=True)
    factor: Array = field(kw_only=True)
    inverse: Array = field(kw_only=True)  # of the factor
    negative: Array = field(kw_only=True)  # G at the rows that EP runs on


@dataclass(frozen=True)
class _Conditioned:
    """The prior of the other rows given the exact ones, ``N(mean, cov)``. An `Engine` of EP.

    Attributes
    ----------
    mean, cov : arrays of shapes (c,) and (c, c)
        Mean and covariance of the prior.
    work : two arrays of shape (c, c)
        Buffers for a factor and its inverse, zeros at first. The arrays of a posterior are valid until the next call
        of `marginals`.
    """

    mean: Array
    cov: Array
    work: tuple[Array, Array]

    def factor(self, root: Array) -> Array:
        """Return the Cholesky factor of ``I + S^½ V S^½`` (R&W eq. 3.26)."""
        inner = np.multiply(self.cov, root, out=self.work[0])
        inner *= root[:, None]
        inner = inner.T  # symmetric, so the transpose is in LAPACK's order
        np.einsum("ii->i", inner)[:] += 1.0
        return cholesky(inner, overwrite=True) if root.size else inner

    def _solved(self, pull: Array, root: Array, L: Array) -> Array:
        """``(I + S V)⁻¹ pull`` by way of ``S^½ (L Lᵀ)⁻¹ S^-½``: no difference of near equals where S is large.

        Where a precision is zero the equation reads ``α_i = pull_i``, and the other rows feel ``S V`` times that.
        """
        none = root == 0
        rest = pull - np.square(root) * (self.cov[:, none] @ pull[none]) if pull[none].any() else pull
        whitened = np.divide(rest, root, out=np.zeros_like(pull), where=~none)
        solved = solve_lower(L, solve_lower(L, whitened), transposed=True)
        return np.where(none, pull, root * solved)

    def marginals(self, sites: Sites) -> _Conditional:
        """R&W algorithm 3.5, lines 12 to 15, for a prior with a mean."""
        if sites.tau.min(initial=0.0) < 0:
            return self._with_negative(sites)
        prior = np.diag(self.cov)
        pull = sites.nu - sites.tau * self.mean
        if sites.tau.any():
            root = np.sqrt(sites.tau)
            L, inverse, kept, var = self._updated(sites, root, prior)
            # Posterior mean = mean + cov α (R&W eq. 3.67 for a prior with a mean).
            alpha = self._solved(pull, root, L)
        else:  # sites without precision, such as those EP starts from
            L = inverse = np.eye(len(prior), order="F")
            root, kept, var, alpha = sites.tau, np.ones_like(prior), prior, sites.nu
        shift = self.cov @ alpha
        log_normaliser = (
            -0.5 * log_det(L) + 0.5 * float(pull @ shift) + float(self.mean @ (sites.nu - 0.5 * sites.tau * self.mean))
        )
        none = np.empty((len(prior), 0))
        return _Conditional(
            self.mean + shift, var, log_normaliser, kept, alpha, root=root, factor=L, inverse=inverse, negative=none
        )

    def _with_negative(self, sites: Sites) -> _Conditional:
        """The posterior where some precisions are negative: without them first, then the correction of low rank."""
        rows = np.flatnonzero(sites.tau < 0)
        d = -sites.tau[rows]
        # Without the negative precisions, but with the whole pull: the posterior mean is prior mean + Σ⁺ pull.
        pull = sites.nu - sites.tau * self.mean
        positive = np.maximum(sites.tau, 0.0)
        first = self.marginals(Sites(positive, pull + positive * self.mean))
        shift = first.mean - self.mean
        # Columns N of (I + S V)⁻¹ = I − S^½ (L Lᵀ)⁻¹ S^½ V.
        W = first.inverse @ (first.root[:, None] * self.cov[:, rows])
        columns = -first.root[:, None] * (first.inverse.T @ W)
        columns[rows, np.arange(rows.size)] += 1.0
        cross = self.cov @ columns  # Σ⁺ at all rows and N
        inner = np.eye(rows.size) - np.sqrt(d)[:, None] * cross[rows] * np.sqrt(d)
        C = cholesky(np.asfortranarray(inner))
        G = solve_lower(C, np.asfortranarray((columns * np.sqrt(d)).T)).T
        toward = solve_lower(C, np.sqrt(d) * shift[rows])
        alpha = first.alpha + G @ toward
        spread = np.einsum("ij,ij->i", self.cov @ G, self.cov @ G)
        var = first.var + spread
        shift = self.cov @ alpha
        log_normaliser = (
            -0.5 * (log_det(first.factor) + log_det(C))
            + 0.5 * float(pull @ shift)
            + float(self.mean @ (sites.nu - 0.5 * sites.tau * self.mean))
        )
        kept = np.where(sites.tau < 0, 1.0 - sites.tau * var, first.kept - sites.tau * spread)
        return _Conditional(
            self.mean + shift,
            var,
            log_normaliser,
            kept,
            alpha,
            root=first.root,
            factor=first.factor,
            inverse=first.inverse,
            negative=G,
        )

    def moved(self, posterior: Marginals, sites: Sites) -> Marginals | None:
        """Move the means one step towards those under other sites, with the current factor; None at the prior.

        The factor of the prior is too far from that under the sites.
        """
        assert isinstance(posterior, _Conditional)
        if posterior.negative.size or not posterior.root.any():
            return None
        pull = sites.nu - sites.tau * posterior.mean - posterior.alpha
        alpha = posterior.alpha + self._solved(pull, posterior.root, posterior.factor)
        return replace(posterior, mean=self.mean + self.cov @ alpha, alpha=alpha)

    def _updated(self, sites: Sites, root: Array, prior: Array) -> tuple[Array, Array, Array, Array]:
        """Return `factor`, its inverse, ``1 − τσ²`` and the posterior variances σ²."""
        L = self.factor(root)
        inverse = inverse_lower(L, self.work[1].T)
        kept = np.einsum("ij,ij->j", inverse, inverse)  # diagonal of (I + S^½ V S^½)⁻¹ = I − S^½ Σ S^½
        # σ² = (1 − kept)/τ has a relative error of ε/(τσ²): only weak sites need the difference of variances.
        weak = sites.tau * prior < _WEAK
        var = np.divide(1.0 - kept, sites.tau, out=np.empty_like(kept), where=~weak)
        if weak.any():
            W = (inverse * root) @ self.cov[:, weak]
            # The rounding error of the prior variance is a lower limit of what the difference can resolve.
            var[weak] = np.maximum(prior[weak] - np.einsum("ij,ij->j", W, W), np.finfo(float).eps * prior[weak])
        return L, inverse, kept, var


@dataclass(frozen=True)
class DensePosterior:
    """The posterior process: Gaussian at any inputs.

    Attributes
    ----------
    kernel : Kernel
        Prior covariance, resolved to column positions.
    X : array of shape (n, d)
        Training inputs, exact rows first.
    alpha : array of shape (n,)
        Weights of the posterior mean ``K(·, X) alpha``.
    factor : BlockFactor
        Factor of ``(K + Σ̃)⁻¹``.
    """

    kernel: Kernel
    X: Array
    alpha: Array
    factor: BlockFactor

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Return posterior means and variances at X."""
        cross = self.kernel._cross(self.X, X)
        W, negative = self.factor.whiten(cross)
        explained = np.einsum("ij,ij->j", W, W) - np.einsum("ij,ij->j", negative, negative)
        return cross.T @ self.alpha, self.kernel.diag(X) - explained

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Return posterior mean and covariance matrix at X."""
        cross = self.kernel._cross(self.X, X)
        W, negative = self.factor.whiten(cross)
        return cross.T @ self.alpha, self.kernel.on(Pairs(X)).matrix(len(X)) - W.T @ W + negative.T @ negative

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draw jointly at X; shape (size, n)."""
        return sample_gaussian(*self.joint(X), size, rng)
