"""Exact GP regression and EP with full covariance matrices, for up to a few thousand rows.

An observation whose likelihood is Gaussian is its own exact site. So condition on those first (one Cholesky factor),
and run EP on the others only, under the prior that is left for them. Rows are ordered exact ones (``e``) first, others
(``c``) last. With ``D = diag(1, S^½)`` over the two groups, S the precisions of EP's sites, the factor

    ⎡ L        0   ⎤      L Lᵀ = K_ee + Σ_e,  B = L⁻¹ K_ec,  V = K_cc − BᵀB,
    ⎣ S^½ Bᵀ   L_c ⎦      L_c L_cᵀ = I + S^½ V S^½

is that of ``M = D (K + Σ̃) D``, and nothing is divided by a precision, which may be zero. Predictions need
``R = (K + Σ̃)⁻¹ = D M⁻¹ D`` (R&W eqs. 3.60, 3.61), the gradient of the evidence its contraction with ∂K
(R&W eq. 5.9 with sites held).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.blas import dsyr

from unmet._linalg import (
    cholesky,
    cholesky_jittered,
    inverse_from_cholesky,
    inverse_lower,
    log_det,
    sample_gaussian,
    solve_lower,
)
from unmet._normal import LOG_SQRT_2PI
from unmet._typing import Array, IntArray
from unmet.inference.ep import Marginals, Sites, expectation_propagation
from unmet.inference.result import Inference, Info
from unmet.kernels.base import Kernel
from unmet.kernels.pairs import Pairs, Weights
from unmet.likelihoods.base import Likelihood, Observations

__all__ = ["DensePosterior", "DenseProblem", "infer", "prepare"]

# Site precision times prior variance below which a site is weak: 1e-3 costs three of sixteen digits.
_WEAK = 1e-3


@dataclass(frozen=True)
class DenseProblem:
    """What does not change with hyper-parameters: rows ordered exact first, and the lags between them."""

    pairs: Pairs
    obs: Observations
    order: IntArray
    n_exact: int


def prepare(X: Array, obs: Observations, likelihood: Likelihood) -> DenseProblem:
    """Order the rows and get ready to find lags."""
    exact, _, _ = likelihood.exact_sites(obs)
    order = np.argsort(~exact, kind="stable")
    return DenseProblem(Pairs(np.ascontiguousarray(X[order])), obs[order], order, int(exact.sum()))


def infer(
    kernel: Kernel,
    likelihood: Likelihood,
    problem: DenseProblem,
    start: Sites | None = None,
    *,
    gradient: bool = True,
    tol: float = 1e-8,
    max_sweeps: int = 200,
) -> Inference:
    """Posterior, log evidence and its gradient at given hyper-parameters.

    Parameters
    ----------
    kernel, likelihood : Kernel, Likelihood
        The model; `kernel` resolved to column positions.
    problem : DenseProblem
        From `prepare`.
    start : Sites, optional
        EP's starting point: the `sites` of an earlier result.
    gradient : bool
        False leaves the gradient out.
    tol, max_sweeps : float, int
        When EP stops.
    """
    n, e = len(problem.pairs), problem.n_exact
    K = kernel.on(problem.pairs).matrix(n).T  # symmetric, and so as LAPACK wants it, column by column
    _, tau, nu = likelihood.exact_sites(problem.obs[:e])
    A = np.array(K[:e, :e], order="F")
    np.einsum("ii->i", A)[:] += 1.0 / tau
    L, jitter = cholesky_jittered(A) if e else (A, 0.0)
    B = solve_lower(L, K[:e, e:])
    white = solve_lower(L, nu / tau)  # L⁻¹ y
    prior = _Conditioned(B.T @ white, K[e:, e:] - B.T @ B)
    ep = expectation_propagation(prior, likelihood, problem.obs[e:], start, tol=tol, max_sweeps=max_sweeps)
    log_z = -0.5 * float(white @ white) - 0.5 * log_det(L) - e * LOG_SQRT_2PI + ep.log_z

    root = np.sqrt(ep.sites.tau)
    factor = np.zeros((n, n), order="F")
    factor[:e, :e] = L
    factor[e:, :e] = (B * root).T
    assert isinstance(ep.posterior, _Conditional)
    factor[e:, e:] = ep.posterior.factor
    alpha_c = ep.posterior.alpha
    alpha = np.concatenate([solve_lower(L, white - B @ alpha_c, transposed=True), alpha_c])
    posterior = DensePosterior(kernel, problem.pairs.X, alpha, factor, np.concatenate([np.ones(e), root]))
    info = Info(ep.converged, ep.sweeps, ep.residual, jitter)
    if not gradient:
        return Inference(posterior, log_z, None, ep.sites, info)
    M_inverse = inverse_from_cholesky(factor)
    precision = np.diag(M_inverse)[:e].copy()
    by_kernel = -kernel.contract(problem.pairs, Weights(_evidence_weights(M_inverse, root, alpha)))
    # At the fixed point each site sees its cavity: y − m = α/R, v + noise = 1/R (R&W eq. 5.12).
    cavity_mean = nu / tau - alpha[:e] / precision
    exact = likelihood.tilted(problem.obs[:e], cavity_mean, 1.0 / precision - 1.0 / tau)
    by_likelihood = exact.d_theta.sum(axis=0) + ep.tilted.d_theta.sum(axis=0)
    return Inference(posterior, log_z, np.concatenate([by_kernel, by_likelihood]), ep.sites, info)


def _evidence_weights(R: Array, root: Array, alpha: Array) -> Array:
    """``F`` with ``Σ F ∘ ∂K = −½ tr((ααᵀ − R) ∂K)`` for symmetric ∂K, in the place of M⁻¹'s lower triangle.

    Only the lower triangle is filled, off its diagonal with twice the weight.
    """
    e = len(R) - root.size
    R[e:] *= root[:, None]
    R[:, e:] *= root
    F = np.asarray(dsyr(-1.0, alpha, a=R, lower=1, overwrite_a=1))
    F.flat[:: len(F) + 1] *= 0.5
    return F


@dataclass(frozen=True)
class _Conditional(Marginals):
    """What the sites make of `_Conditioned`, with the factor that it came by."""

    kept: Array
    alpha: Array
    factor: Array = field(kw_only=True)


@dataclass(frozen=True)
class _Conditioned:
    """The prior that the exact observations leave for the others: ``N(mean, cov)``; an `Engine` of EP."""

    mean: Array
    cov: Array

    def factor(self, root: Array) -> Array:
        """Cholesky factor of ``I + S^½ V S^½`` (R&W eq. 3.26)."""
        inner = (self.cov * root[:, None] * root).T  # symmetric, and so already in LAPACK's order
        np.einsum("ii->i", inner)[:] += 1.0
        return cholesky(inner, overwrite=True) if root.size else inner

    def alpha(self, sites: Sites, L: Array) -> Array:
        """``α`` with posterior mean ``mean + cov α`` (R&W eq. 3.67 for a prior with a mean); L from `factor`.

        ``S^½ (I + S^½ V S^½)⁻¹ S^-½ (ν − τ·mean)``: no difference of near equals where sites are sharp.
        """
        root = np.sqrt(sites.tau)
        pull = sites.nu - sites.tau * self.mean
        whitened = np.divide(pull, root, out=np.zeros_like(pull), where=root > 0)
        solved = solve_lower(L, solve_lower(L, whitened), transposed=True)
        return np.where(root > 0, root * solved, pull)

    def marginals(self, sites: Sites) -> _Conditional:
        """R&W algorithm 3.5, lines 12 to 15, for a prior with a mean."""
        root = np.sqrt(sites.tau)
        L = self.factor(root)
        inverse = inverse_lower(L)
        kept = np.einsum("ij,ij->j", inverse, inverse)  # diagonal of (I + S^½ V S^½)⁻¹ = I − S^½ Σ S^½
        prior = np.diag(self.cov)
        # σ² = (1 − kept)/τ has a relative error of ε/(τσ²): only weak sites need the difference of variances.
        weak = sites.tau * prior < _WEAK
        W = (inverse * root) @ self.cov[:, weak]
        var = np.divide(1.0 - kept, sites.tau, out=np.empty_like(kept), where=~weak)
        # A variance below the rounding error of the prior's is not known to be any smaller than that.
        var[weak] = np.maximum(prior[weak] - np.einsum("ij,ij->j", W, W), np.finfo(float).eps * prior[weak])
        alpha = self.alpha(sites, L)
        shift = self.cov @ alpha
        pull = sites.nu - sites.tau * self.mean
        log_normaliser = (
            -0.5 * log_det(L) + 0.5 * float(pull @ shift) + float(self.mean @ (sites.nu - 0.5 * sites.tau * self.mean))
        )
        return _Conditional(self.mean + shift, var, log_normaliser, kept, alpha, factor=L)


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
        Posterior mean is ``K(·, X) alpha``.
    factor, scale : arrays of shapes (n, n) and (n,)
        ``(K + Σ̃)⁻¹ = diag(scale) (factor factorᵀ)⁻¹ diag(scale)``.
    """

    kernel: Kernel
    X: Array
    alpha: Array
    factor: Array
    scale: Array

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Posterior means and variances at X."""
        cross = self.kernel._cross(self.X, X)
        W = solve_lower(self.factor, np.asfortranarray(cross * self.scale[:, None]))
        return cross.T @ self.alpha, self.kernel.diag(X) - np.einsum("ij,ij->j", W, W)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Posterior mean and covariance matrix at X."""
        cross = self.kernel._cross(self.X, X)
        W = solve_lower(self.factor, np.asfortranarray(cross * self.scale[:, None]))
        return cross.T @ self.alpha, self.kernel.on(Pairs(X)).matrix(len(X)) - W.T @ W

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Joint draws at X."""
        return sample_gaussian(*self.joint(X), size, rng)
