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

# Site precision times prior variance below which a site is weak: 1e-3 costs three of sixteen digits.
_WEAK = 1e-3


@dataclass(frozen=True)
class DenseProblem:
    """What does not change with hyper-parameters: rows ordered exact first, and the lags between them."""

    pairs: Pairs
    exact: Observations
    other: Observations


def prepare(X: Array, obs: Observations, likelihood: Likelihood) -> DenseProblem:
    """Order the rows and get ready to find lags."""
    # The C library keeps freed memory for the next evaluation up to twice the largest block that it was given back
    # (mallopt(3)); else every evaluation has it mapped and zeroed anew, a sixth of its time at n = 640.
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
    factor = BlockFactor(L, B, ep.posterior.root, ep.posterior.factor)
    posterior = DensePosterior(kernel, problem.pairs.X, alpha, factor)
    info = Info(ep.converged, ep.sweeps, ep.residual, jitter)
    if not gradient:
        return Inference(posterior, log_z, None, ep.sites, info)
    R = factor.inverse(ep.posterior.inverse)
    precision = np.diag(R)[:e].copy()
    by_kernel = -kernel.contract(problem.pairs, Weights(_evidence_weights(R, alpha)))
    # At the fixed point each site sees its cavity: y − m = α/R, v + noise = 1/R (R&W eq. 5.12).
    cavity_mean = nu / tau - alpha[:e] / precision
    exact = likelihood.tilted(problem.exact, cavity_mean, 1.0 / precision - 1.0 / tau)
    by_likelihood = exact.d_theta.sum(axis=0) + ep.tilted.d_theta.sum(axis=0)
    return Inference(posterior, log_z, np.concatenate([by_kernel, by_likelihood]), ep.sites, info)


def _conditioned_on_exact(kernel: Kernel, problem: DenseProblem, noise: Array) -> tuple[Array, Array, Array, float]:
    """``L``, ``B`` and ``V`` as above, and the jitter that L needed."""
    e = len(problem.exact)
    K = kernel.on(problem.pairs).matrix(len(problem.pairs)).T  # symmetric, and so as LAPACK wants it, column by column
    A = np.array(K[:e, :e], order="F")
    np.einsum("ii->i", A)[:] += noise
    L, jitter = cholesky_jittered(A) if e else (A, 0.0)
    B = solve_lower(L, K[:e, e:])
    return L, B, K[e:, e:] - B.T @ B, jitter


def _evidence_weights(R: Array, alpha: Array) -> Array:
    """``F`` with ``Σ F ∘ ∂K = −½ tr((ααᵀ − R) ∂K)`` for symmetric ∂K, in the place of R's lower triangle.

    Only the lower triangle is filled, off its diagonal with twice the weight.
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
    """

    exact: Array
    cross: Array
    root: Array
    other: Array

    def whiten(self, X: Array) -> Array:
        """``W`` with ``XᵀRX = WᵀW``: the factor's inverse times ``D X``."""
        e = len(self.exact)
        first = solve_lower(self.exact, np.asfortranarray(X[:e]))
        rest = np.asfortranarray(self.root[:, None] * (X[e:] - self.cross.T @ first))
        return np.concatenate([first, solve_lower(self.other, rest)])

    def inverse(self, other_inverse: Array) -> Array:
        """Lower triangle of ``R = D M⁻¹ D``, with zeros above; ``L_c⁻¹`` is known from EP's last sweep."""
        whitener = join_inverse(inverse_lower(self.exact), self.cross * self.root, other_inverse)
        whitener[len(self.exact) :, len(self.exact) :] *= self.root
        return gram_of_lower(whitener)


@dataclass(frozen=True)
class _Conditional(Marginals):
    """What the sites make of `_Conditioned`, with the factor that it came by."""

    kept: Array
    alpha: Array
    root: Array = field(kw_only=True)
    factor: Array = field(kw_only=True)
    inverse: Array = field(kw_only=True)  # of the factor


@dataclass(frozen=True)
class _Conditioned:
    """The prior that the exact observations leave for the others: ``N(mean, cov)``; an `Engine` of EP.

    Attributes
    ----------
    mean, cov : arrays of shapes (c,) and (c, c)
        Of the prior.
    work : two arrays of shape (c, c)
        Zeros at first: room for a factor and its inverse. A posterior's are good until `marginals` is called again.
    """

    mean: Array
    cov: Array
    work: tuple[Array, Array]
    signed: bool = False  # the factor is scaled by roots of precisions

    def factor(self, root: Array) -> Array:
        """Cholesky factor of ``I + S^½ V S^½`` (R&W eq. 3.26)."""
        inner = np.multiply(self.cov, root, out=self.work[0])
        inner *= root[:, None]
        inner = inner.T  # symmetric, and so already in LAPACK's order
        np.einsum("ii->i", inner)[:] += 1.0
        return cholesky(inner, overwrite=True) if root.size else inner

    def _solved(self, pull: Array, root: Array, L: Array) -> Array:
        """``(I + S V)⁻¹ pull`` by way of ``S^½ (L Lᵀ)⁻¹ S^-½``: no difference of near equals where S is large."""
        whitened = np.divide(pull, root, out=np.zeros_like(pull), where=root > 0)
        solved = solve_lower(L, solve_lower(L, whitened), transposed=True)
        return np.where(root > 0, root * solved, pull)

    def marginals(self, sites: Sites) -> _Conditional:
        """R&W algorithm 3.5, lines 12 to 15, for a prior with a mean."""
        prior = np.diag(self.cov)
        pull = sites.nu - sites.tau * self.mean
        if sites.tau.any():
            root = np.sqrt(sites.tau)
            L, inverse, kept, var = self._updated(sites, root, prior)
            # Posterior mean = mean + cov α (R&W eq. 3.67 for a prior with a mean).
            alpha = self._solved(pull, root, L)
        else:  # sites that say nothing of variances, such as those EP starts from
            L = inverse = np.eye(len(prior), order="F")
            root, kept, var, alpha = sites.tau, np.ones_like(prior), prior, sites.nu
        shift = self.cov @ alpha
        log_normaliser = (
            -0.5 * log_det(L) + 0.5 * float(pull @ shift) + float(self.mean @ (sites.nu - 0.5 * sites.tau * self.mean))
        )
        return _Conditional(self.mean + shift, var, log_normaliser, kept, alpha, root=root, factor=L, inverse=inverse)

    def moved(self, posterior: Marginals, sites: Sites) -> Marginals | None:
        """One step towards the mean under other sites, with the factor that is there; the prior's is too far off."""
        assert isinstance(posterior, _Conditional)
        if not posterior.root.any():
            return None
        pull = sites.nu - sites.tau * posterior.mean - posterior.alpha
        alpha = posterior.alpha + self._solved(pull, posterior.root, posterior.factor)
        return replace(posterior, mean=self.mean + self.cov @ alpha, alpha=alpha)

    def _updated(self, sites: Sites, root: Array, prior: Array) -> tuple[Array, Array, Array, Array]:
        """`factor`, its inverse, ``1 − τσ²`` and the posterior variances σ²."""
        L = self.factor(root)
        inverse = inverse_lower(L, self.work[1].T)
        kept = np.einsum("ij,ij->j", inverse, inverse)  # diagonal of (I + S^½ V S^½)⁻¹ = I − S^½ Σ S^½
        # σ² = (1 − kept)/τ has a relative error of ε/(τσ²): only weak sites need the difference of variances.
        weak = sites.tau * prior < _WEAK
        var = np.divide(1.0 - kept, sites.tau, out=np.empty_like(kept), where=~weak)
        if weak.any():
            W = (inverse * root) @ self.cov[:, weak]
            # A variance below the rounding error of the prior's is not known to be any smaller than that.
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
        Posterior mean is ``K(·, X) alpha``.
    factor : BlockFactor
        Of ``(K + Σ̃)⁻¹``.
    """

    kernel: Kernel
    X: Array
    alpha: Array
    factor: BlockFactor

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Posterior means and variances at X."""
        cross = self.kernel._cross(self.X, X)
        W = self.factor.whiten(cross)
        return cross.T @ self.alpha, self.kernel.diag(X) - np.einsum("ij,ij->j", W, W)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Posterior mean and covariance matrix at X."""
        cross = self.kernel._cross(self.X, X)
        W = self.factor.whiten(cross)
        return cross.T @ self.alpha, self.kernel.on(Pairs(X)).matrix(len(X)) - W.T @ W

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Joint draws at X."""
        return sample_gaussian(*self.joint(X), size, rng)
