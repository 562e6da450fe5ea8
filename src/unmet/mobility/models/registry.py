"""The demand models: one record for each, from which help texts, checks and the words of the report are made.

This module loads none of the models: the command line lists them in its help, which should not wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from unmet._exceptions import InputError

if TYPE_CHECKING:
    from unmet.mobility.models.rates import ModelFunction, Rates
    from unmet.mobility.models.zone_data import ZoneData

__all__ = ["COMPARED_MODELS", "DEFAULT_DRAWS", "DEFAULT_MODEL", "MODELS", "ZoneModel", "check_draws", "find_model"]


@dataclass(frozen=True)
class ZoneModel:
    """A demand model: a function that estimates one zone, and what there is to know about it.

    Parameters
    ----------
    name : str
        Unique name, as used by ``LatentDemand(model=...)``.
    function : callable or str
        Called as ``function(data, draws, seed)`` with a `unmet.mobility.models.zone_data.ZoneData`; returns
        `unmet.mobility.models.rates.Rates`. Worker processes call it, so it must be a function of a module. A string
        ``"module:function"`` is imported on first use.
    sentence : str
        One or two sentences for the report.
    uses_city : bool
        Whether the model uses the city model, which is then learnt before the zones.
    uses_covariates : bool
        Whether the model uses weather and holidays.
    supply : {"exposure", "labels", "none"}
        The information about supply that the model uses: the share of each bin with something to rent, the labels of
        censored bins, or neither. The report states the assumptions that come with it.

    Examples
    --------
    >>> MODELS["weekly-mean"].uses_city
    False
    """

    name: str
    function: ModelFunction | str
    sentence: str = ""
    uses_city: bool = False
    uses_covariates: bool = True
    supply: Literal["exposure", "labels", "none"] = "exposure"

    def __call__(self, data: ZoneData, draws: int, seed: int) -> Rates:
        """Estimate one zone."""
        function = self.function
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(import_module(module), name)
        rates: Rates = function(data, draws, seed)
        return rates

    @property
    def source(self) -> str:
        """The function as ``module:name``."""
        if isinstance(self.function, str):
            return self.function
        function: Any = self.function
        return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"

    def to_dict(self) -> dict[str, Any]:
        """Give a JSON-able description, for ``run.json`` and the report."""
        return {
            "name": self.name,
            "sentence": self.sentence,
            "uses_city": self.uses_city,
            "uses_covariates": self.uses_covariates,
            "supply": self.supply,
        }


_ZONE_MODELS, _BASELINES = "unmet.mobility.models.zone_models", "unmet.mobility.models.baselines"

_RECORDS = (
    ZoneModel(
        "exposure",
        f"{_ZONE_MODELS}:exposure",
        "Negative binomial counts with exposure: pickups are counted against the time with something to rent. "
        "Expected demand follows a weekly pattern, a slow trend, holidays and weather, by Gaussian processes. With "
        "eight zones or more, a curve of the whole city is learnt first, then how each zone differs from it.",
        uses_city=True,
    ),
    ZoneModel(
        "cgp",
        f"{_ZONE_MODELS}:cgp",
        "Censored Gaussian process: in bins labelled as stock-outs, demand was at least the observed trips; in all "
        "other bins it was equal to them.",
        supply="labels",
    ),
    ZoneModel(
        "share",
        f"{_ZONE_MODELS}:share",
        "Negative binomial counts of which bins labelled as stock-outs show a share, anything between none and all. It "
        "needs labels only, no minutes, and no label where the status is unknown. For bins of a day its intervals are "
        "wide, because labels alone do not tell how much of a day was lost.",
        supply="labels",
    ),
    ZoneModel(
        "ncgp",
        f"{_ZONE_MODELS}:ncgp",
        "Gaussian process that ignores stock-outs and treats observed trips as demand. Expect it to be too low.",
        supply="none",
    ),
    ZoneModel(
        "ncgp-a",
        f"{_ZONE_MODELS}:ncgp_a",
        "Gaussian process without the bins that had a stock-out. The remaining bins are biased to low demand.",
        supply="none",
    ),
    ZoneModel(
        "tobit",
        f"{_ZONE_MODELS}:tobit",
        "Linear Tobit model with effects of the hour of the week, trend, holidays and weather. In bins labelled as "
        "stock-outs, demand was at least the observed trips.",
        supply="labels",
    ),
    ZoneModel(
        "observed",
        f"{_BASELINES}:observed",
        "Observed trips as demand: a baseline in which no trip is lost.",
        uses_covariates=False,
        supply="none",
    ),
    ZoneModel(
        "weekly-mean",
        f"{_BASELINES}:weekly_mean",
        "Pickups per time with supply, by hour of the week: a baseline without trend and weather.",
        uses_covariates=False,
    ),
    ZoneModel(
        "drop-censored",
        f"{_BASELINES}:drop_censored",
        "Mean pickups by hour of the week over the bins without a stock-out: a baseline. The remaining bins are "
        "biased to low demand.",
        uses_covariates=False,
    ),
)

MODELS: Mapping[str, ZoneModel] = {record.name: record for record in _RECORDS}
"""The models by name, the default first."""

DEFAULT_MODEL = "exposure"

DEFAULT_DRAWS = 400
"""Joint posterior draws of a run."""
_FEWEST_DRAWS, _MOST_DRAWS = 20, 10_000  # fewer give no intervals; more take gigabytes for the year of a zone

COMPARED_MODELS = ("exposure", "weekly-mean", "drop-censored", "observed")
"""The models that a backtest compares by default."""


def find_model(model: str | ZoneModel) -> ZoneModel:
    """Give the record of a model by its name; a record of one's own is checked and returned.

    Examples
    --------
    >>> find_model("cgp").supply
    'labels'
    """
    if isinstance(model, ZoneModel):
        if not model.name:
            raise InputError("model: expected a name in the record; got an empty one.")
        if model != MODELS.get(model.name, model):
            raise InputError(f"model: {model.name!r} is the name of a built-in model; choose another name.")
        return model
    if not isinstance(model, str) or model not in MODELS:
        raise InputError(f"no model {model!r}; expected one of {', '.join(MODELS)}, or a ZoneModel")
    return MODELS[model]


def check_draws(draws: Any, seed: Any) -> None:
    """Refuse a number of posterior draws that gives no intervals or does not fit in memory, and a negative seed."""
    if not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed: expected a whole number of at least 0, got {seed!r:.60}.")
    if not isinstance(draws, Integral):
        raise InputError(f"draws: expected a whole number, got {draws!r:.60}.")
    if not _FEWEST_DRAWS <= int(draws) <= _MOST_DRAWS:
        raise InputError(f"draws: expected {_FEWEST_DRAWS} to {_MOST_DRAWS:,}, got {int(draws):,}.")
