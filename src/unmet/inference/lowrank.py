"""EP in weight space: ``f = Ψw``, ``w ~ N(0, I)``, for long series (``O(n m²)`` per sweep with m features).

Naming: ``Ψ = Φ diag(S)^½`` are the scaled features, so that no step divides by a small prior variance;
``A = I + Ψᵀ T Ψ`` the posterior precision of w, T the precisions of all sites; ``h = Ψᵀ ν``. Rows whose likelihood
is Gaussian (``e``) are their own sites and enter A and h once; EP runs on the others (``c``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import block_diag

from unmet._linalg import cholesky, inverse_from_cholesky, inverse_lower, log_det, sample_gaussian, solve_lower
from unmet._normal import LOG_SQRT_2PI
from unmet._typing import Array, BoolArray
from unmet.inference.ep import Marginals, Sites, expectation_propagation
from unmet.inference.features import Block, Memo, stretches
from unmet.inference.result import Inference, Info
from unmet.kernels.base import Kernel
from unmet.likelihoods.base import Likelihood, Observations, Tilted

__all__ = ["LowRankPosterior", "LowRankProblem", "infer", "prepare"]


@dataclass(frozen=True)
class LowRankProblem:
    """The part that does not change with hyper-parameters: the plan of features, and features that stay constant."""

    X: Array
    obs: Observations
    exact: BoolArray
    block: Block
    memo: Memo = field(default_factory=dict, repr=False)


def prepare(X: Array, obs: Observations, likelihood: Likelihood, block: Block) -> LowRankProblem:
    """Prepare the problem; features that do not depend on hyper-parameters are evaluated once.

    Parameters
    ----------
    X : array of shape (n, d)
        Training inputs.
    obs : Observations
        Training observations.
    likelihood : Likelihood
        Determines which rows are exact.
    block : Block
        The plan of features.

    Returns
    -------
    LowRankProblem
    """
    exact, _, _ = likelihood.exact_sites(obs)
    return LowRankProblem(X, obs, exact, block)


def infer(
    kernel: Kernel,
    likelihood: Likelihood,
    problem: LowRankProblem,
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
    problem : LowRankProblem
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
    unmet.inference.dense.infer : The same with full covariance matrices.
    """
    block, exact = problem.block, problem.exact
    root_s = np.exp(0.5 * block.log_spectrum(kernel))
    psi = block.phi(kernel, problem.X, problem.memo) * root_s
    _, tau, nu = likelihood.exact_sites(problem.obs)
    psi_e, tau_e, nu_e = (psi[exact], tau[exact], nu[exact]) if exact.any() else (psi[:0], tau[:0], nu[:0])
    A = np.eye(block.size) + _weighted_square(psi_e, tau_e)
    engine = _WeightSpace(psi if not exact.any() else psi[~exact], A, psi_e.T @ nu_e)
    ep = expectation_propagation(engine, likelihood, problem.obs[~exact], start, tol=tol, max_sweeps=max_sweeps)
    log_z = ep.log_z + float(np.sum(0.5 * np.log(tau_e) - 0.5 * nu_e**2 / tau_e)) - tau_e.size * LOG_SQRT_2PI
    assert isinstance(ep.posterior, _Weights)
    L, w = ep.posterior.factor, ep.posterior.weights
    posterior = LowRankPosterior(kernel, block, w, L)
    info = Info(ep.converged, ep.sweeps, ep.residual, 0.0)
    if not gradient:
        return Inference(posterior, log_z, None, ep.sites, info)
    tau[~exact], nu[~exact] = ep.sites.tau, ep.sites.nu
    cov = _symmetric(inverse_from_cholesky(L))
    alpha = nu - tau * (psi @ w)
    by_phi = None
    if block.moves(kernel):
        # <G, dΦ> with G = (α wᵀ − T Ψ A⁻¹) diag(S)^½: the contraction of ½(ααᵀ − R) with d(ΦSΦᵀ).
        by_phi = psi @ (-cov)
        by_phi *= tau[:, None]
        by_phi += np.multiply.outer(alpha, w)
        by_phi *= root_s
    by_log_s = 0.5 * (np.square(w) + np.diag(cov) - 1.0)
    by_kernel = block.contract(kernel, problem.X, by_log_s, by_phi, problem.memo)
    by_likelihood = ep.tilted.d_theta.sum(axis=0)
    if exact.any():
        precision = tau_e - tau_e**2 * np.einsum("ij,ij->i", psi_e @ cov, psi_e)
        by_exact = likelihood.exact_gradient(problem.obs[exact], alpha[exact], precision)
        by_likelihood = by_likelihood + by_exact.sum(axis=0)
    by_theta = np.concatenate([by_kernel, by_likelihood])
    information = None if exact.any() or block.moves(kernel) else _information(block.slopes(kernel), cov, ep.tilted)
    return Inference(posterior, log_z, by_theta, ep.sites, info, information)


def _information(slopes: Array, cov: Array, tilted: Tilted) -> Array:
    """Return the Fisher information of theta, between kernel and likelihood taken as 0.

    With the sites as data, ``K = ΨΨᵀ + T⁻¹`` has ``∂K = Ψ diag(D) Ψᵀ`` for slopes D of log S. As
    ``Ψᵀ K⁻¹ Ψ = I − A⁻¹ = M``, the information ``½ tr(K⁻¹ ∂K K⁻¹ ∂K')`` (R&W eq. 5.9) is ``½ Dᵀ (M ∘ M) D'``. That of
    the likelihood is the sum over rows of squared scores.
    """
    by_kernel = 0.5 * slopes.T @ np.square(np.eye(len(cov)) - cov) @ slopes
    return block_diag(by_kernel, tilted.d_theta.T @ tilted.d_theta)


def _weighted_square(psi: Array, tau: Array) -> Array:
    """``Ψᵀ T Ψ``; precisions may be negative."""
    total = np.zeros((psi.shape[1], psi.shape[1]))
    for rows in stretches(len(psi)):
        scaled = psi[rows] * np.sqrt(np.abs(tau[rows]))[:, None]
        total += scaled.T @ scaled
        negative = tau[rows] < 0
        if negative.any():
            total -= 2 * scaled[negative].T @ scaled[negative]
    return total


def _symmetric(lower: Array) -> Array:
    return lower + np.tril(lower, -1).T


@dataclass(frozen=True)
class _Weights(Marginals):
    """Marginals at the observations, and the posterior of the weights."""

    weights: Array = field(kw_only=True)
    factor: Array = field(kw_only=True)


@dataclass(frozen=True)
class _WeightSpace:
    """Weights with precision `A` and shift `h`, and features `psi` at the rows that EP runs on. An `Engine` of EP."""

    psi: Array
    A: Array
    h: Array

    def marginals(self, sites: Sites) -> _Weights:
        L = cholesky(np.asfortranarray(self.A + _weighted_square(self.psi, sites.tau)))
        shift = self.h + self.psi.T @ sites.nu
        w = solve_lower(L, solve_lower(L, shift), transposed=True)
        # One product with L⁻¹ takes two thirds of the time of solving with L for all rows.
        var, root = np.empty(len(self.psi)), np.ascontiguousarray(inverse_lower(L).T)
        for rows in stretches(len(var)):
            W = self.psi[rows] @ root
            var[rows] = np.einsum("ij,ij->i", W, W)
        log_normaliser = -0.5 * log_det(L) + 0.5 * float(shift @ w)
        return _Weights(self.psi @ w, var, log_normaliser, weights=w, factor=L)

    def moved(self, posterior: Marginals, sites: Sites) -> None:
        """Return None: tilted moments of counts cost as much as a sweep."""


@dataclass(frozen=True)
class LowRankPosterior:
    """The posterior process: ``f = Ψw`` plus the prior covariance that features leave out, which data do not update."""

    kernel: Kernel
    block: Block
    weights: Array
    factor: Array

    def _scaled(self, X: Array) -> tuple[Array, Array]:
        psi = self.block.phi(self.kernel, X) * np.exp(0.5 * self.block.log_spectrum(self.kernel))
        return psi, solve_lower(self.factor, np.asfortranarray(psi.T))

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Return posterior means and variances at X."""
        psi, W = self._scaled(X)
        return psi @ self.weights, np.einsum("ij,ij->j", W, W) + self.block.residual(self.kernel, X, full=False)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Return posterior mean and covariance matrix at X."""
        psi, W = self._scaled(X)
        return psi @ self.weights, W.T @ W + self.block.residual(self.kernel, X, full=True)

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draw jointly at X from draws of the weights. No n × n matrix is made for rows that features explain."""
        psi = self.block.phi(self.kernel, X) * np.exp(0.5 * self.block.log_spectrum(self.kernel))
        noise = rng.standard_normal((self.weights.size, size))
        draws = (psi @ (self.weights[:, None] + solve_lower(self.factor, noise, transposed=True))).T
        beyond = self.block.residual(self.kernel, X, full=False) > 0
        if beyond.any():
            unexplained = self.block.residual(self.kernel, X[beyond], full=True)
            draws[:, beyond] += sample_gaussian(np.zeros(int(beyond.sum())), unexplained, size, rng)
        return draws
