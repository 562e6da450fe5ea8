"""Expectation propagation: one loop for all likelihoods and engines (R&W section 3.6; paper section 3.4.1).

Naming: ``τ, ν`` are natural parameters of the sites ``exp(−½ τ f² + ν f)``; ``μ, σ²`` marginals of the current
posterior; ``m, v`` the cavity. An engine (dense or low rank) computes the posterior marginals under given sites.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from unmet._exceptions import NumericalError
from unmet._typing import Array
from unmet.likelihoods.base import Likelihood, Observations, Tilted

__all__ = ["EPResult", "Engine", "Marginals", "Sites", "expectation_propagation"]

_MEMORY = 5  # past steps that Anderson acceleration combines
_FAR = 1.0  # no acceleration while a site moves by more than this many posterior standard deviations
_FAST = 0.2  # nor while the last step left less than this share of the movement
_PATIENCE = 8  # sweeps without progress
_SHORTEST = 0.02  # least share of a step that is taken
_SETTLED = 0.1  # from nothing, no precision is negative before sites move by less than this
_MOST_RETREATS = 8  # of EP's steps, after which precisions are kept from being negative
_RETREATS = 20  # halvings of a step that leads to an improper posterior
_ROUNDING = 1e-6  # movements this small that no longer shrink are rounding (a broad prior, large counts)


@dataclass(frozen=True)
class Sites:
    """Gaussian approximations of the likelihood of each observation, as natural parameters.

    Attributes
    ----------
    tau, nu : arrays of shape (n,)
        Precisions, and precisions times means.
    secants : array of shape (2, k, 2n), optional
        EP's last k steps in ``[τ, ν]``, and how its proposals changed with them. That is much the same under the
        next hyper-parameters: to start with it saves a quarter of the sweeps of a search.
    bounded : bool
        Whether precisions were kept from being negative, because EP found no proper posterior otherwise. Sites that
        would be negative are 0 then and match the tilted mean alone; the gradient of the evidence, which takes both
        moments for matched, is only near.
    """

    tau: Array
    nu: Array
    secants: Array | None = None
    bounded: bool = False


@dataclass(frozen=True)
class Marginals:
    """Posterior means and variances at the observations, and ``log ∫ prior × sites``.

    Where sites are much sharper than the prior, `kept` and `alpha` are differences of nearly equal numbers. An engine
    that has a more accurate formula sets them; others leave them None.

    Attributes
    ----------
    mean, var : arrays of shape (n,)
        Posterior marginals ``μ, σ²``.
    log_normaliser : float
        ``log ∫ prior × sites``.
    kept : array of shape (n,), optional
        ``1 − τσ²``, the ratio of posterior to cavity variance.
    alpha : array of shape (n,), optional
        ``ν − τμ``, by which ``μ = m + v·alpha``.
    """

    mean: Array
    var: Array
    log_normaliser: float
    kept: Array | None = None
    alpha: Array | None = None


class Engine(Protocol):
    """A Gaussian prior over the latent values at the observations, to be multiplied by sites."""

    def marginals(self, sites: Sites) -> Marginals:
        """Return the posterior under the given sites."""
        ...

    def moved(self, posterior: Marginals, sites: Sites) -> Marginals | None:
        """Return a posterior with means moved towards the given sites and the same variances; None if that is slow."""
        ...


@dataclass(frozen=True)
class EPResult:
    """The final state of EP.

    Attributes
    ----------
    sites : Sites
        Natural parameters of the sites.
    log_z : float
        EP's approximation of the log evidence.
    tilted : Tilted
        The likelihood's integrals under the final cavities.
    posterior : Marginals
        The engine's posterior under the final sites.
    converged : bool
        Whether the last movement is below the tolerance.
    sweeps : int
        Number of updates of all sites.
    residual : float
        Last movement of a site, in units of its posterior.
    """

    sites: Sites
    log_z: float
    tilted: Tilted
    posterior: Marginals
    converged: bool
    sweeps: int
    residual: float


def expectation_propagation(
    engine: Engine,
    likelihood: Likelihood,
    obs: Observations,
    start: Sites | None = None,
    *,
    tol: float = 1e-8,
    max_sweeps: int = 300,
) -> EPResult:
    """Update all sites in parallel, with Anderson acceleration, until none moves.

    Parameters
    ----------
    engine : Engine
        Prior over the latent values at `obs`.
    likelihood : Likelihood
        Computes the tilted moments.
    obs : Observations
        The observations.
    start : Sites, optional
        Sites of a similar problem to start from; by default all zero.
    tol : float
        Movement of a site, in units of the posterior, below which EP has converged (1e-6 where rounding errors do not
        allow less).
    max_sweeps : int
        Most sweeps.

    Returns
    -------
    EPResult

    References
    ----------
    Minka (2001), "Expectation propagation for approximate Bayesian inference".
    Rasmussen & Williams (2006), "Gaussian Processes for Machine Learning", section 3.6.
    """
    sites = start if start is not None else Sites(np.zeros(len(obs)), np.zeros(len(obs)))
    history = _History(sites.secants)
    damping, best, last, idle = 1.0, np.inf, np.inf, 0
    proper, bounded = Sites(np.zeros(len(obs)), np.zeros(len(obs))), start is None or start.bounded
    retreats, given_up = 0, False
    for sweep in range(1, max_sweeps + 1):
        posterior, proper, retreated = _proper(engine, sites, proper)
        sites = proper
        m, v = _cavities(posterior, sites)
        tilted = likelihood.tilted(obs, m, v)
        proposed = _proposed(tilted, m, bounded)
        change = _difference(proposed, sites)
        residual = float(np.abs(_in_units(change, posterior)).max(initial=0.0))
        if (
            bounded and not given_up and residual < _SETTLED
        ):  # near a posterior that is proper: negative precisions may follow
            bounded = False
            proposed = _proposed(tilted, m, bounded)
            if proposed.tau.min(initial=0.0) < 0:
                change = _difference(proposed, sites)
                residual = float(np.abs(_in_units(change, posterior)).max(initial=0.0))
                history.secants, best, last = None, np.inf, np.inf
        if retreated:
            history.secants, damping, retreats = None, max(0.5 * damping, _SHORTEST), retreats + 1
        if not bounded and (retreats > _MOST_RETREATS or sweep == max_sweeps // 2) and sites.tau.min(initial=0.0) < 0:
            bounded = given_up = True
            sites = Sites(np.maximum(sites.tau, 0.0), np.where(sites.tau < 0, tilted.d1, sites.nu))
            history.secants, damping, best, last, idle = None, 1.0, np.inf, np.inf, 0
            continue
        idle = 0 if residual < best else idle + 1
        converged = residual < tol or (residual < _ROUNDING and idle >= _PATIENCE)
        if converged or sweep == max_sweeps:
            history.observe(sites, change)
            break
        if residual > 10 * best or idle >= _PATIENCE:  # astray, or going round in circles: tread carefully
            damping, best, idle = max(0.5 * damping, _SHORTEST), residual, 0
            history.secants = None
        elif residual < 0.5 * best:
            damping = min(1.5 * damping, 1.0)
        if residual > _FAR:
            history.secants = None
        elif damping == 1.0 and (moved := engine.moved(posterior, proposed)) is not None:
            m, v = _cavities(moved, sites)
            change = _difference(_proposed(likelihood.tilted(obs, m, v), m, bounded), sites)
        history.observe(sites, change)
        fast = residual < _FAST * last < np.inf
        sites = history.step(sites, change, posterior, damping, accelerated=not fast)
        best, last = min(best, residual), residual
    sites = replace(sites, secants=history.secants, bounded=given_up)
    log_z = posterior.log_normaliser + float(np.sum(tilted.log_z - _site_log_normaliser(sites, m, v)))
    return EPResult(sites, log_z, tilted, posterior, converged, sweep, residual)


def _proper(engine: Engine, sites: Sites, last: Sites) -> tuple[Marginals, Sites, bool]:
    """The posterior under `sites`, or under the nearest to them, on the way from the last ones, that is proper.

    Returns the posterior, its sites, and whether they are not those asked for. Sites without negative precisions are
    always proper.
    """
    if sites.tau.min(initial=0.0) >= 0:
        return engine.marginals(sites), sites, False
    tried = sites
    for _ in range(_RETREATS):
        try:
            posterior = engine.marginals(tried)
        except NumericalError:  # the posterior precision is not positive definite
            posterior = None
        if posterior is not None:
            kept = posterior.kept if posterior.kept is not None else 1.0 - tried.tau * posterior.var
            if (kept > 0).all() and (posterior.var > 0).all():
                return posterior, tried, tried is not sites
        tried = Sites(0.5 * (tried.tau + last.tau), 0.5 * (tried.nu + last.nu))
    return engine.marginals(last), last, True


def _proposed(tilted: Tilted, m: Array, bounded: bool) -> Sites:
    """Sites that match the tilted moments: R&W eqs. 3.59 and 3.66 in terms of the derivatives of log Ẑ.

    A precision is negative where an observation makes f less certain, which a mixture can do. `bounded` sites have
    precision 0 there and match the tilted mean alone: then every posterior and cavity is proper.
    """
    # Of a log-concave likelihood a shrink above 1 is rounding.
    widens = tilted.d2 > 0
    if not bounded:
        widens &= tilted.shrink < 1.0 + _ROUNDING
    tau = np.where(widens, 0.0, -tilted.d2 / tilted.shrink)
    return Sites(tau, np.where(widens, tilted.d1, (tilted.d1 - m * tilted.d2) / tilted.shrink))


def _difference(new: Sites, old: Sites) -> Array:
    return np.concatenate([new.tau - old.tau, new.nu - old.nu])


def _cavities(posterior: Marginals, sites: Sites) -> tuple[Array, Array]:
    """Return the posterior marginals without each row's own site (R&W eq. 3.56)."""
    kept = posterior.kept if posterior.kept is not None else 1.0 - sites.tau * posterior.var
    alpha = posterior.alpha if posterior.alpha is not None else sites.nu - sites.tau * posterior.mean
    v = posterior.var / kept
    return posterior.mean - v * alpha, v


def _site_log_normaliser(sites: Sites, m: Array, v: Array) -> Array:
    """Return ``log ∫ N(f | m, v) exp(−½ τ f² + ν f) df``, without division by τ, which may be zero."""
    pull = sites.nu - sites.tau * m
    spread = 1.0 + sites.tau * v
    return -0.5 * np.log(spread) + 0.5 * np.square(pull) * v / spread + m * (sites.nu - 0.5 * sites.tau * m)


class _History:
    """Anderson acceleration of the fixed point ``sites ↦ sites + change`` (Walker & Ni 2011)."""

    def __init__(self, secants: Array | None) -> None:
        self.secants = secants
        self._last: Array | None = None

    def observe(self, sites: Sites, change: Array) -> None:
        """Record the change that is proposed at the given sites."""
        now = np.concatenate([sites.tau, sites.nu, change]).reshape(2, 1, -1)
        if self._last is not None:
            latest = now - self._last
            known = latest if self.secants is None else np.concatenate([latest, self.secants], axis=1)
            self.secants = known[:, :_MEMORY]
        self._last = now

    def step(
        self, sites: Sites, change: Array, posterior: Marginals, damping: float, *, accelerated: bool = True
    ) -> Sites:
        """Return the next sites: the combination of past steps whose changes ``[dτ, dν]`` cancel best."""
        n = sites.tau.size
        plain = np.concatenate([sites.tau, sites.nu]) + damping * change
        if self.secants is None or not accelerated:
            return Sites(plain[:n], plain[n:])
        steps, responses = self.secants
        free = _in_units(np.concatenate([change[None], responses]), posterior)
        norms = np.sqrt(np.einsum("ij,ij->i", free, free)) + np.finfo(float).tiny
        free /= norms[:, None]
        # There are few columns, so normal equations are accurate enough: `rcond` drops what is below 1e-6 of the rest.
        gram = free @ free.T
        gamma = np.linalg.lstsq(gram[1:, 1:], gram[1:, 0], rcond=1e-12)[0] * norms[0] / norms[1:]
        mixed = plain - gamma @ (steps + damping * responses)
        # A precision that is negative by extrapolation alone has no meaning: such sites take the plain step.
        illegal = np.flatnonzero(mixed[:n] < np.minimum(plain[:n], 0.0))
        mixed[illegal], mixed[n + illegal] = plain[illegal], plain[n + illegal]
        return Sites(mixed[:n], mixed[n:])


def _in_units(changes: Array, posterior: Marginals) -> Array:
    """Return changes of sites, ``[dτ, dν]`` in each row, as fractions of posterior precision and standard deviation."""
    n = posterior.mean.size
    d_tau, d_nu = changes[..., :n], changes[..., n:]
    by_nu = (d_nu - posterior.mean * d_tau) * np.sqrt(posterior.var)
    return np.concatenate([d_tau * posterior.var, by_nu], axis=-1)
