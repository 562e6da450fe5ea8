"""The parts of a city that its zones share, as they were learnt: shocks and walking, and their part in one zone.

Accounting, draw by draw: wanted = served here + walked on + lost; observed = served here + walked in. A walker from i
to j is one of the riders counted at j, so the split of j's count decides both what walked in at j and what walked on
from i. Each zone makes that split from the same seed, and sums over all zones agree.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack

from unmet._exceptions import FileFormatError
from unmet._typing import Array, IntArray
from unmet.mobility.models.held_out import HeldOut
from unmet.mobility.models.kept import KeptJoint
from unmet.mobility.models.shock_law import ShockLaw
from unmet.mobility.models.surroundings import Received, Surroundings, relative_walking, sums_by_draw
from unmet.mobility.models.walking import Walking, Walks
from unmet.mobility.models.zone_table import ZoneTable

__all__ = ["JointCity", "hours_of_day"]

_OWN_SEED = 6  # of what is drawn for each zone apart
_UNUSUAL_DAYS = 5  # that are described
_MOST_AT_ONCE = 250_000_000  # bytes of draws that a worker is given
# Bytes of draws of riders received that are remembered: those of 300 zones and a year of hours. Zones are asked for
# from south to north: in a city of 600 zones some 130 are as far north as those in reach.
_MOST_REMEMBERED = 1_000_000_000


def hours_of_day(table: ZoneTable) -> IntArray:
    """Number of the hour of the day of each bin, apart at weekends: 0 to 47."""
    return np.asarray(table.slot % 24 + 24 * (table.slot >= 120))


@dataclass(frozen=True)
class JointCity:
    """Shocks and walking of a city, as `join_city` found them.

    Attributes
    ----------
    zones, start : tuple of str, DatetimeIndex
        Names and bins.
    law : ShockLaw
        How large shocks are, how far they reach, how long they last.
    walking : Walking
        How far riders walk.
    features, shock_mean, shock_var : arrays
        What each component of the shocks means for each zone; shock of each zone and bin.
    components : array of shape (bins, draws, m)
        Joint draws of the components.
    own_var : array of shape (zones,)
        Variance of each zone's shocks that no component has.
    precision, pull : arrays of shape (zones, bins)
        What each bin's count says of its shock: a Gaussian factor ``exp(pull · h − ½ precision · h²)``.
    background : array of shape (zones, bins)
        Walkers expected.
    own : array of shape (zones, bins)
        Pickups expected of a zone's own riders.
    rate : array of shape (zones, bins)
        Riders expected to come to the zone first, in a full bin.
    dispersion, within : float, array of shape (zones,)
        Of counts beside the shocks, over all zones and of each.
    lasting : float
        Part of it that the seen and the hidden part of a bin share: see `unmet.mobility.models.lasting`.
    level : array of shape (zones, 48)
        Log by which a zone's rate at an hour of the day, apart at weekends, differs from that of its own fit.
    observed : array of shape (zones, bins)
        Pickups.
    walks : Walks
        Who was out and who had stock.
    held_out : HeldOut or None
        Bias and coverage on bins that were held out; None if there were too few.
    """

    zones: tuple[str, ...]
    start: pd.DatetimeIndex
    law: ShockLaw
    walking: Walking
    features: Array
    shock_mean: Array
    shock_var: Array
    components: NDArray[np.float32]
    own_var: Array
    precision: Array
    pull: Array
    background: Array
    own: Array
    rate: Array
    dispersion: float
    within: Array
    lasting: float
    level: Array
    observed: Array
    walks: Walks
    held_out: HeldOut | None = None

    @property
    def kept(self) -> KeptJoint:
        """Give the parts that later bins are estimated with."""
        within = dict(zip(self.zones, self.within.tolist(), strict=True))
        return KeptJoint(self.law, self.walking, self.dispersion, within, self.lasting, self.held_out)

    @property
    def draws(self) -> int:
        """How many joint draws there are."""
        return self.components.shape[1]

    @property
    def zones_at_once(self) -> int:
        """How many zones a worker can take with their draws, which are 16 bytes a bin and draw."""
        return int(np.clip(_MOST_AT_ONCE // (16 * self.draws * len(self.start)), 1, 8))

    def describe(self, bins: pd.DataFrame) -> dict[str, Any]:
        """Describe how far riders walk, how large shocks are and which days were unusual, as JSON-able values.

        Parameters
        ----------
        bins : DataFrame
            Bins of the panel: ``start`` and ``start_local``.
        """
        at = self.start.get_indexer(pd.DatetimeIndex(bins["start"]))
        day = bins["start_local"].to_numpy()[at >= 0].astype("datetime64[D]")
        at = at[at >= 0]
        known = np.where(np.isfinite(self.observed), self.rate, 0.0)[:, at]
        usual = np.nan_to_num(known * np.exp(-self.shock_mean[:, at]))
        by_day = pd.DataFrame({"known": known.sum(axis=0), "usual": usual.sum(axis=0)}).groupby(day).sum()
        change = (by_day["known"] / by_day["usual"] - 1.0).dropna()
        unusual = change.iloc[np.argsort(-np.abs(change.to_numpy()), kind="stable")[:_UNUSUAL_DAYS]]
        return {
            "walking": self.walking.describe(),
            "shocks": asdict(self.law),
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "unusual_days": [{"day": str(d)[:10], "change": float(c)} for d, c in unusual.items()],
        }

    def brief(self, zone: str, start: pd.DatetimeIndex) -> Surroundings | None:
        """Give the surroundings of the rows of a zone, without draws: enough to fit it."""
        if zone not in self.zones:
            return None
        i, at = self.zones.index(zone), self.start.get_indexer(start)
        if (at < 0).any():
            return None
        none, no_riders = np.empty((0, len(at)), dtype=np.float32), np.empty((0, len(at)), dtype=np.int32)
        return Surroundings(
            shock=self.shock_mean[i, at],
            shock_var=self.shock_var[i, at],
            shock_draws=none,
            prior_var=self.law.variance,
            background=self.background[i, at],
            walked_on=none,
            riders_on=no_riders,
            riders_in=no_riders,
            within=float(self.within[i]),
            lasting=self.lasting,
        )

    def of(self, zone: str, start: pd.DatetimeIndex, seed: int = 0) -> Surroundings | None:
        """Give the surroundings of the rows of a zone; None where it is not one of the city's, or has other bins."""
        found = self.brief(zone, start)
        if found is None:
            return None
        i, at = self.zones.index(zone), self.start.get_indexer(start)
        bins = slice(None) if np.array_equal(at, np.arange(len(self.start))) else at  # a slice copies nothing
        chance = np.zeros((len(self.start), self.draws), dtype=np.float32)
        mine = self.walks.of_source(i)
        on: list[tuple[IntArray, csc_array]] = []
        if mine.size and self.walking.theta.size:
            relative, of_row = relative_walking(self.walking, self.walks.distance[mine], self.draws, seed)
            chance = np.minimum(
                sums_by_draw(self._chances[mine], self.walks.bin[mine], len(chance), relative, of_row), 1.0
            ).astype(np.float32)
            for target in np.unique(self.walks.target[mine]):
                received, drawn = self._split(int(target), seed)
                here = np.flatnonzero(received.source == i)
                on.append((received.bin[here], drawn[:, here]))
        received, drawn = self._split(i, seed)
        return replace(
            found,
            shock_draws=self._shock_draws(i, seed)[bins].T,
            walked_on=chance[bins].T,
            riders_on=self._by_bin(on)[:, bins],
            riders_in=self._by_bin([(received.bin, drawn)])[:, bins],
        )

    def _shock_draws(self, zone: int, seed: int) -> NDArray[np.float32]:
        """Draws of a zone's shocks, shape (bins, draws): its components, and given them its own part."""
        shared = self.components @ self.features[zone].astype(np.float32)
        if not self.own_var[zone]:
            return shared
        kept = 1 + self.own_var[zone] * self.precision[zone]
        mean, factor = self.own_var[zone] * self.pull[zone] / kept, 1 / kept
        sd = np.sqrt(self.own_var[zone] / kept)
        noise = np.random.default_rng([_OWN_SEED, seed, zone]).standard_normal(shared.shape, dtype=np.float32)
        shift, scale, spread = (v.astype(np.float32)[:, None] for v in (mean, factor, sd))
        return np.asarray(shared * scale + shift + spread * noise, dtype=np.float32)

    def _by_bin(self, parts: Sequence[tuple[IntArray, csc_array]]) -> NDArray[np.int32]:
        """Sum riders by bin, shape (draws, bins), from pairs of bins and draws of shape (draws, n)."""
        if not parts:
            return np.zeros((self.draws, len(self.start)), dtype=np.int32)
        bins = np.concatenate([bins for bins, _ in parts])
        ones = np.ones(len(bins), dtype=np.int32)
        adding = csr_array((ones, (np.arange(len(bins)), bins)), shape=(len(bins), len(self.start)))
        return np.asarray((hstack([drawn for _, drawn in parts]) @ adding).toarray(), dtype=np.int32)

    def log_rate(self, table: ZoneTable) -> tuple[Array, Array]:
        """Mean and variance of the logarithm of every zone's rate with its shock, shape (zones, bins)."""
        usual = table.log_rate + self.level[:, hours_of_day(table)] - 0.5 * self.law.variance
        return usual + self.shock_mean, table.log_rate_var + self.shock_var

    def received(self, zone: int) -> Received:
        """Riders counted at a zone who may have walked in."""
        rows = self.walks.of_target(zone)
        if not self.walking.theta.size:
            rows = rows[:0]
        source, bin_ = self.walks.source[rows], self.walks.bin[rows]
        counted = np.isfinite(self.observed[zone, bin_]) & (self.observed[zone, bin_] > 0)
        rows, source, bin_ = rows[counted], source[counted], bin_[counted]
        order = np.lexsort([source, bin_])
        rows, source, bin_ = rows[order], source[order], bin_[order]
        walkers = self.rate[source, bin_] * self.walks.out[rows] * self._chances[rows]
        return Received(
            zone, bin_, source, self.walks.distance[rows], walkers, self.observed[zone, bin_], self.own[zone, bin_]
        )

    def _split(self, zone: int, seed: int) -> tuple[Received, csc_array]:
        """Riders received by a zone, and draws of where they came from; the last are remembered for its neighbours.

        Most draws are zero, so they are kept as sparse columns. Each zone asks for the split of all its neighbours:
        if those that are near one another are asked for together, each split is made once.
        """
        if (zone, seed) not in self._splits:
            received = self.received(zone)
            self._splits[zone, seed] = received, received.split(self.walking, self.draws, seed)
            while len(self._splits) > 1 and sum(map(_size, self._splits.values())) > _MOST_REMEMBERED:
                del self._splits[next(iter(self._splits))]
        return self._splits[zone, seed]

    @cached_property
    def _splits(self) -> dict[tuple[int, int], tuple[Received, csc_array]]:
        return {}

    @cached_property
    def _chances(self) -> Array:
        return self.walks.chances(self.walking)

    def save(self, path: Path) -> None:
        """Write the city to a NumPy archive."""
        header = {
            "zones": list(self.zones),
            "unit": self.start.unit,
            "law": self.law.to_dict(),
            "walking": self.walking.to_dict(),
            "dispersion": self.dispersion,
            "lasting": self.lasting,
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
        }
        walks = {f"walks_{f.name}": getattr(self.walks, f.name) for f in fields(self.walks)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with path.open("wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), start=self.start.asi8, **arrays, **walks)

    @classmethod
    def load(cls, path: Path) -> JointCity:
        """Read what `save` wrote."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                start = pd.DatetimeIndex(file["start"].view(f"M8[{header['unit']}]")).tz_localize("UTC")
                return cls(
                    zones=tuple(header["zones"]),
                    start=start,
                    law=ShockLaw.from_dict(header["law"]),
                    walking=Walking.from_dict(header["walking"]),
                    dispersion=float(header["dispersion"]),
                    lasting=float(header["lasting"]),
                    held_out=HeldOut.from_dict(header["held_out"]),
                    walks=Walks(*(file[f"walks_{f.name}"] for f in fields(Walks))),
                    **{name: file[name] for name in _ARRAYS},
                )
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise FileFormatError(f"{path}: The file does not contain a saved city: {error!r}") from error


def _size(split: tuple[Received, csc_array]) -> int:
    _, drawn = split
    return int(drawn.data.nbytes + drawn.indices.nbytes + drawn.indptr.nbytes)


_ARRAYS = (
    "features",
    "shock_mean",
    "shock_var",
    "components",
    "own_var",
    "precision",
    "pull",
    "background",
    "own",
    "rate",
    "within",
    "level",
    "observed",
)
