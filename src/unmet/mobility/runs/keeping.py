"""Keep parts of a finished run, so that a run with a few days more of records estimates only the last bins.

``kept.npz`` has the posteriors of the zones and of the city's curve, the law of shocks, the walking curve, and draws of
all bins before a moment, `Kept.settled`: two weeks before the end of the records. A later run takes over the rows
and draws before that moment and estimates the others from what was kept. It always starts from the last run that was
estimated in full, so that errors do not add up from day to day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import UnmetError
from unmet._storage.arrays import write_arrays
from unmet._storage.hashes import file_hash, frame_hash
from unmet._storage.sql import fetch_frame, fetch_one, parquet_sql, path_literal, reading
from unmet._typing import Array
from unmet.mobility.models.city import CityModel
from unmet.mobility.models.kept import KeptCurve, KeptFit, KeptJoint
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.learnt import LEAST_DAYS, MOST_DAYS, SETTLED_DAYS
from unmet.mobility.runs.periods import PeriodDraws
from unmet.mobility.runs.totals import ZoneDraws

__all__ = [
    "KEPT",
    "Kept",
    "NotKept",
    "ZoneRecord",
    "check_records",
    "check_still_fits",
    "features_hash",
    "read_kept",
    "read_records",
    "settled_moment",
    "write_kept",
    "write_records",
    "zone_record",
]

KEPT = "kept.npz"
_FORMAT = 5  # also of the tables that a later run continues
# Pickups of the new bins over those expected, as a logarithm: beyond, the model is learnt anew.
_LARGEST_MISFIT = 0.25
# Settled bins whose labels may differ from those of the earlier run, pickups that may be more or fewer, and mean change
# of exposure; of one zone, pickups and mean change.
_FEW_CHANGES, _SMALL_CHANGE = 1e-3, 0.01
_OF_ZONE, _SOME, _CHANGE_OF_ZONE = 0.02, 3, 0.02
_SAME_PLACE = 5e-4  # degrees: some 50 m. Feeds correct positions by less.
_DRAWS = ("lost", "walked_on", "walked_in")
_BY_PERIOD = "period_"  # draws by period, of the names of `PeriodDraws.to_parts`
_PERIODS = tuple(f"{_BY_PERIOD}{name}" for name in ("periods", "observed", *_DRAWS))
_ARRAYS = ("weights", "factor", *_DRAWS, "observed", *_PERIODS)


class NotKept(UnmetError):
    """The model has to be learnt anew. The message states why."""


ZoneRecord = tuple[dict[str, Any], dict[str, Array]]
"""A zone's fit and its draws of settled bins, as a JSON-able header and arrays."""


def zone_record(fit: KeptFit, before: ZoneDraws, periods: PeriodDraws) -> ZoneRecord:
    """Arrange what is kept of a zone: its fit, and draws of its settled bins by hour of the week and by period."""
    header, arrays = fit.to_parts()
    draws = {name: np.rint(getattr(before, name)).astype(np.uint32) for name in _DRAWS}
    by_period = {f"{_BY_PERIOD}{name}": values for name, values in periods.to_parts().items()}
    return header, {**arrays, **draws, "observed": before.observed, **by_period}


def write_records(path: Path, records: Sequence[ZoneRecord]) -> None:
    """Write what is kept of some zones."""
    arrays = {f"{i}_{name}": values for i, (_, own) in enumerate(records) for name, values in own.items()}
    text = json.dumps([header for header, _ in records], default=str)
    with path.open("wb") as file:
        np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]


def read_records(path: Path) -> list[ZoneRecord]:
    """Read what `write_records` wrote."""
    with np.load(path, allow_pickle=False) as file:
        headers = json.loads(str(file["header"]))
        return [(header, {name: file[f"{i}_{name}"] for name in _ARRAYS}) for i, header in enumerate(headers)]


@dataclass(frozen=True)
class Kept:
    """The kept parts of an earlier run.

    Attributes
    ----------
    folder, sha256 : Path, str
        Its folder, and the hash of the file.
    settled, end : Timestamp
        Bins before `settled` are taken over. `end` is the start of the last bin of its records.
    inputs : dict
        What its estimates depend on, besides the panel and the features.
    features : str or None
        Hash of the features of settled bins.
    city, joint : CityModel, KeptJoint
        What zones share.
    names : tuple of str
        The zones.
    places, areas : dict
        Zone → latitude and longitude, and zone → area, of zones that have them.
    failures : dict
        Zone → reason why it could not be estimated.
    """

    folder: Path
    sha256: str
    settled: pd.Timestamp
    end: pd.Timestamp
    inputs: dict[str, Any]
    features: str | None
    city: CityModel
    joint: KeptJoint
    names: tuple[str, ...]
    places: dict[str, tuple[float, float]]
    areas: dict[str, str]
    failures: dict[str, str]
    headers: list[dict[str, Any]] = field(repr=False)
    arrays: Mapping[str, Array] = field(repr=False)

    def fit(self, zone: str) -> KeptFit:
        """Give the fit of a zone."""
        i = self.names.index(zone)
        return KeptFit.from_parts(self.headers[i], {n: self.arrays[f"{i}_{n}"] for n in ("weights", "factor")})

    def before(self, zone: str) -> ZoneDraws:
        """Give the draws of a zone's settled bins."""
        i = self.names.index(zone)
        lost, on, came = (self.arrays[f"{i}_{name}"].astype(float) for name in _DRAWS)
        return ZoneDraws(self.arrays[f"{i}_observed"], lost, on, came)

    def periods_before(self, zone: str) -> PeriodDraws:
        """Give the draws of a zone's settled bins by period."""
        i = self.names.index(zone)
        return PeriodDraws.from_parts({name.removeprefix(_BY_PERIOD): self.arrays[f"{i}_{name}"] for name in _PERIODS})


def write_kept(
    path: Path,
    zones: Iterable[tuple[str, ZoneRecord]],
    city: CityModel,
    joint: KeptJoint,
    settled: pd.Timestamp,
    end: pd.Timestamp,
    inputs: Mapping[str, Any],
    features: str | None,
    panel: PanelFile,
    failures: Mapping[str, str],
) -> None:
    """Write the file; the arguments are the attributes of `Kept`, and the panel."""
    assert city.kept is not None
    names: list[str] = []
    headers: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for i, (zone, (header, own)) in enumerate(zones):
        names.append(zone)
        headers.append(header)
        arrays |= {f"{i}_{name}": values for name, values in own.items()}
    curve, own = city.kept.to_parts()
    arrays |= {f"curve_{name}": values for name, values in own.items()}
    content = {
        "format": _FORMAT,
        "settled": settled.isoformat(),
        "end": end.isoformat(),
        "inputs": dict(inputs),
        "features": features,
        "city": replace(city, curve=city.curve.iloc[:1]).to_dict(),
        "curve": curve,
        "joint": joint.to_dict(),
        "zones": names,
        "places": panel.places,
        "areas": panel.areas,
        "fits": headers,
        "failures": dict(failures),
    }
    with path.open("wb") as stream:
        write_arrays(stream, {"header": np.array(json.dumps(content, default=str)), **arrays})


def read_kept(folder: Path, sha256: str | None) -> Kept | None:
    """Read what the run in a folder has kept.

    Parameters
    ----------
    folder : Path
        The folder.
    sha256 : str or None
        Hash of the file in the folder's ``run.json``.

    Returns
    -------
    Kept or None
        None if the run has kept nothing, or the file is damaged or of another run.
    """
    try:
        if sha256 is None or file_hash(folder / KEPT) != sha256:
            return None
        # Stays open: an array is read when it is asked for. The draws of all zones need not fit in memory.
        arrays = np.load(folder / KEPT, allow_pickle=False)
        header = json.loads(str(arrays["header"]))
        if header["format"] != _FORMAT:
            return None
        of_curve = {name.removeprefix("curve_"): arrays[name] for name in arrays.files if name.startswith("curve_")}
        return Kept(
            folder,
            sha256,
            pd.Timestamp(header["settled"]),
            pd.Timestamp(header["end"]),
            header["inputs"],
            header["features"],
            replace(CityModel.from_dict(header["city"]), kept=KeptCurve.from_parts(header["curve"], of_curve)),
            KeptJoint.from_dict(header["joint"]),
            tuple(header["zones"]),
            {zone: (float(lat), float(lon)) for zone, (lat, lon) in header["places"].items()},
            dict(header["areas"]),
            header["failures"],
            header["fits"],
            arrays,
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, BadZipFile, UnmetError):
        return None


def check_records(kept: Kept, file: PanelFile, inputs: Mapping[str, Any]) -> str | None:
    """Raise `NotKept` if the settled bins are not those of the earlier run, or too much time has passed.

    Returns
    -------
    str or None
        A sentence if a few pickups of settled bins, which are taken over, differ from those of the panel.
    """
    for name, value in kept.inputs.items():
        if inputs.get(name) != value:
            raise NotKept(f"the {name} changed.")
    if features_hash(file, kept.settled) != kept.features:
        raise NotKept(f"weather or holidays before {kept.settled:%Y-%m-%d} changed.")
    if sorted({*kept.names, *kept.failures}) != list(file.zones):
        raise NotKept("the zones changed.")
    end = file.bins()["start"].iloc[-1]
    if not kept.end < end <= kept.end + pd.Timedelta(days=MOST_DAYS):
        raise NotKept(f"its records end on {kept.end:%Y-%m-%d}, the new ones on {end:%Y-%m-%d}.")
    told = _check_bins(kept, file)
    if kept.places.keys() != file.places.keys() or any(
        abs(now - before) > _SAME_PLACE
        for zone, place in file.places.items()
        for now, before in zip(place, kept.places[zone], strict=True)
    ):
        raise NotKept("the places of zones changed.")
    if kept.areas != file.areas:  # the rates of areas in settled bins are taken over
        raise NotKept("the areas changed.")
    return told


def _check_bins(kept: Kept, file: PanelFile) -> str | None:
    """Raise `NotKept` if pickups, exposure or labels of settled bins changed by more than a little."""
    demand = path_literal(str(kept.folder / "demand.parquet"))
    sql = f"""
        WITH both_of AS (SELECT d.zone, d.exposure - p.exposure AS moved,
            d.observed IS DISTINCT FROM p.observed AS changed,
            abs(coalesce(d.observed, 0) - coalesce(p.observed, 0)) AS trips, coalesce(d.observed, 0) AS before,
            d.censored::BOOLEAN IS DISTINCT FROM p.censored::BOOLEAN AS relabelled
            FROM {parquet_sql(demand)} d
            LEFT JOIN panel p ON p.zone::VARCHAR = d.zone AND p.start = d.start WHERE d.start < $1),
        by_zone AS (SELECT count(*) AS rows, count(*) FILTER (changed) AS changed, sum(trips) AS trips,
            sum(before) AS before, avg(abs(moved)) AS moved, count(*) FILTER (relabelled) AS labels
            FROM both_of GROUP BY zone)
        SELECT sum(rows), sum(changed), sum(trips), sum(before), sum(moved * rows) / sum(rows), sum(labels),
            bool_or(trips > greatest({_SOME}, {_OF_ZONE} * before) OR moved > {_CHANGE_OF_ZONE}),
            (SELECT count(*) FROM panel WHERE start < $1 AND zone::VARCHAR NOT IN (SELECT unnest($2))) FROM by_zone"""
    with reading(str(kept.folder)):
        found = fetch_one(file.connection, sql, [kept.settled, [*kept.failures, ""]])
    rows, changed, trips, before, moved, labels, one_zone, now = (value or 0 for value in found)
    what = (
        f"{trips:,.0f} of {before:,.0f} pickups in {changed:,} of {rows:,} bins, exposure by {moved:.1%} on average"
        + (", much of it in one zone" if one_zone else "")
    )
    few = _FEW_CHANGES
    if rows != now or changed > few * rows or trips > few * before or moved > _SMALL_CHANGE or one_zone:
        raise NotKept(f"records before {kept.settled:%Y-%m-%d} changed: {what}.")
    if labels > few * rows:  # another rule for censored bins, say: settled bins would keep their labels
        what = f"{labels:,} of {rows:,} bins have others"
        raise NotKept(f"labels (censored) before {kept.settled:%Y-%m-%d} changed: {what}.")
    if not trips:
        return None
    return f"Pickups before {kept.settled:%Y-%m-%d} changed by {trips:,.0f}, too few to count them again in the totals."


def features_hash(file: PanelFile, settled: pd.Timestamp) -> str | None:
    """Give the hash of the features of settled bins; None without features."""
    try:
        sql = "SELECT * FROM features WHERE start < $1 ORDER BY start"
        return frame_hash(fetch_frame(file.connection, sql, [settled]))
    except duckdb.CatalogException:
        return None


def check_still_fits(kept: Kept, start: pd.DatetimeIndex, observed: Array, expected: Array) -> None:
    """Raise `NotKept` if the pickups of the new bins are far from those expected; arrays are (zones, bins)."""
    new = np.asarray(start > kept.end)
    seen = np.isfinite(observed) & np.isfinite(expected) & new
    trips, usual = float(observed[seen].sum()), float(expected[seen].sum())
    misfit = float(np.log((trips + 1) / (usual + 1)))
    if abs(misfit) > _LARGEST_MISFIT:
        raise NotKept(f"the new days have {trips:,.0f} pickups, where the kept model expects {usual:,.0f}.")


def settled_moment(first: pd.Timestamp, last: pd.Timestamp) -> pd.Timestamp | None:
    """Give the moment before which bins are settled, from the first and last bin; None for a short record."""
    if last - first < pd.Timedelta(days=LEAST_DAYS):
        return None
    return last - pd.Timedelta(days=SETTLED_DAYS)
