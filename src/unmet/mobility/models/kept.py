"""Parts of a run that are kept for the next: posteriors of zones and of the city curve, the law of shocks, walking.

With a few days more of records, demand in the new bins is estimated from these, without a fit: only the shocks of the
new bins are estimated anew. A bin's draws use the same weights as those of the bins before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pandas as pd

from unmet._typing import Array
from unmet.estimators.kept import KeptGP
from unmet.mobility.models.held_out import HeldOut
from unmet.mobility.models.shock_law import ShockLaw
from unmet.mobility.models.walking import Walking

__all__ = ["InputScales", "KeptCurve", "KeptFit", "KeptJoint"]


@dataclass(frozen=True)
class InputScales:
    """Origin and units of the inputs of a zone, so that those of later bins are measured alike.

    Attributes
    ----------
    origin : Timestamp
        Local time at which ``t`` is 0.
    covariates : dict
        Column → its median, for gaps, and the mean of its positive values if it is on a log scale, else None.
    """

    origin: pd.Timestamp
    covariates: dict[str, tuple[float, float | None]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give a JSON-able description."""
        return {"origin": self.origin.isoformat(), "covariates": {k: list(v) for k, v in self.covariates.items()}}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` gave."""
        covariates = {name: (float(m), s) for name, (m, s) in description["covariates"].items()}
        return cls(pd.Timestamp(description["origin"]), covariates)


@dataclass(frozen=True)
class KeptFit:
    """The fit of a zone.

    Attributes
    ----------
    gp : KeptGP
        Its posterior.
    level : float
        Log by which its rates are too high: see `unmet.mobility.models.zone_models.fit_counts`.
    dispersion_sd : float
        Standard deviation of the logarithm of the dispersion.
    summary : dict
        Facts about the fit, for the table of zones.
    scales : InputScales
        Of its inputs.
    """

    gp: KeptGP
    level: float
    dispersion_sd: float
    summary: dict[str, Any]
    scales: InputScales

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Give a JSON-able header, and arrays."""
        gp, arrays = self.gp.to_parts()
        header = {"gp": gp, "level": self.level, "dispersion_sd": self.dispersion_sd, "summary": self.summary}
        return {**header, "scales": self.scales.to_dict()}, arrays

    @classmethod
    def from_parts(cls, header: dict[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Read back what `to_parts` gave."""
        gp, scales = KeptGP.from_parts(header["gp"], arrays), InputScales.from_dict(header["scales"])
        return cls(gp, header["level"], header["dispersion_sd"], header["summary"], scales)


@dataclass(frozen=True)
class KeptCurve:
    """The city's curve: see `unmet.mobility.models.city_curve`.

    Attributes
    ----------
    gp : KeptGP
        Its posterior.
    scales : InputScales
        Of its inputs.
    moment : float
        Value of the input that the curve leaves out.
    rate : float
        Mean rate, by which the curve is divided.
    level : array of shape (draws,)
        Mean of each draw, which its errors leave out.
    projection : array of shape (directions, draws)
        From draws to the directions in which the curve is least certain.
    seed : int
        Seed of the draws.
    """

    gp: KeptGP
    scales: InputScales
    moment: float
    rate: float
    level: Array
    projection: Array
    seed: int

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Give a JSON-able header, and arrays."""
        gp, arrays = self.gp.to_parts()
        header = {"gp": gp, "moment": self.moment, "rate": float(self.rate), "seed": self.seed}
        return {**header, "scales": self.scales.to_dict()}, {
            **arrays,
            "level": self.level,
            "projection": self.projection,
        }

    @classmethod
    def from_parts(cls, header: dict[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Read back what `to_parts` gave."""
        gp, scales = KeptGP.from_parts(header["gp"], arrays), InputScales.from_dict(header["scales"])
        errors = arrays["level"], arrays["projection"]
        return cls(gp, scales, header["moment"], header["rate"], *errors, header["seed"])


@dataclass(frozen=True)
class KeptJoint:
    """Shocks and walking, learnt from all zones together: see `unmet.mobility.models.joint`."""

    law: ShockLaw
    walking: Walking
    dispersion: float
    within: dict[str, float]
    lasting: float
    held_out: HeldOut | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give a JSON-able description."""
        learnt = {"law": self.law.to_dict(), "walking": self.walking.to_dict()}
        held_out = None if self.held_out is None else self.held_out.to_dict()
        spread = {"dispersion": self.dispersion, "within": self.within, "lasting": self.lasting}
        return {**learnt, **spread, "held_out": held_out}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` gave."""
        law, walking = ShockLaw.from_dict(description["law"]), Walking.from_dict(description["walking"])
        held_out = HeldOut.from_dict(description["held_out"])
        return cls(law, walking, description["dispersion"], description["within"], description["lasting"], held_out)
