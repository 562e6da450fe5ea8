"""Riders who walk on, on real records of Jersey City: the learnt curve, and pickups beside empty stations.

The city is estimated as one. Pickups are then compared with the riders expected, by distance of the nearest zone that
was out for more than half of the hour: with own riders alone, and with those who walk in. The expectation of a count
does not use the count itself. Where walking is right, that ratio does not change with distance.

The shares of riders who are served at one zone with stock are compared with those measured without any model
(`_walked.py`). Riders do not walk farther than 700 m: what is measured there shows how far the measurement is off.

Give the folder of the data as ``--data`` or ``$UNMET_DATA``; ``--zones N`` takes N stations only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd
from _walked import walked_shares
from check_real_demand import ZONE, jersey_city

from unmet.mobility.backtest.hours import fitted_table
from unmet.mobility.features.bins import bin_features
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.joint_city import JointCity, hours_of_day
from unmet.mobility.models.shocks import estimate_shocks
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.models.zone_table import ZoneTable
from unmet.mobility.panel.file import open_panel

RINGS = (0.0, 200.0, 300.0, 400.0, 500.0, 700.0, np.inf)
TOO_FAR = (700.0, 1000.0, 1500.0)
MOSTLY, STOCKED = 0.5, 0.99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNMET_DATA", "../shared/data")))
    parser.add_argument("--zones", type=int, default=53)
    options = parser.parse_args()
    if not (options.data / "citibike_jersey_city").is_dir():
        print(f"walking: skipped, no data at {options.data}; name its folder with --data or $UNMET_DATA")
        return
    table = fitted(options.data, options.zones)
    joint = join_city(table, draws=2)
    print(joint.law)
    found = rings(table, joint)
    for by in ("day", "hour"):
        measured = walked_shares(options.data, (*RINGS[:-1], *TOO_FAR[1:]), by)
        near, far = measured.iloc[: len(RINGS) - 2], measured.iloc[len(RINGS) - 2 :]
        found = found.join(near.set_axis(found.index[: len(near)]).rename(columns={"se": f"se by {by}"}))
        print(f"farther than anybody walks ({TOO_FAR} m): {far.round(3).to_numpy().tolist()} by {by}")
    print(found.round(3).to_string())


def fitted(data: Path, zones: int) -> ZoneTable:
    """Fit the zones of Jersey City one by one."""
    with tempfile.TemporaryDirectory(prefix="unmet-walking-") as folder:
        hours = Path(folder) / "hours.parquet"
        weather = jersey_city(data, hours, zones)
        stations = pd.read_csv(data / "citibike_jersey_city/stations.csv").set_index("station_id")
        places = {str(zone): (lat, lon) for zone, lat, lon in stations[["lat", "lon"]].itertuples()}
        with open_panel(hours) as file:
            file.set_features(bin_features(file, weather=weather, timezone=ZONE, holidays="US").frame)
            rows = [file.rows_of(zone) for zone in file.zones]
        pairs = [(of_zone, zone_data(of_zone)) for of_zone in rows]
        some = [(of_zone, data) for of_zone, data in pairs if data.seen.any() and data.has_counts]
        return fitted_table(some, places, 0, "Walking", lambda _: None)


def rings(table: ZoneTable, joint: JointCity) -> pd.DataFrame:
    """Pickups over those expected by distance of the nearest empty zone, and the curve in the middle of each ring."""
    usual = table.log_rate + joint.level[:, hours_of_day(table)] + 0.5 * (table.log_rate_var - joint.law.variance)
    shocks = estimate_shocks(
        np.where(table.exposure > 0, table.observed, np.nan),
        table.exposure,
        usual,
        joint.background,
        joint.law,
        table.metres,
        dispersion=joint.dispersion,
        hours=table.hours,
    )
    own = table.exposure * np.exp(usual + shocks.left_out_mean + 0.5 * shocks.left_out_var)
    metres = np.where(np.eye(len(table.zones), dtype=bool), np.nan, table.metres)
    nearest = np.full(own.shape, np.inf)
    for zone in range(len(metres)):
        near = np.where(table.stockout > MOSTLY, metres[zone][:, None], np.inf)
        nearest[zone] = np.fmin.reduce(near, axis=0)
    seen = np.isfinite(table.observed) & (table.exposure > 0) & np.isfinite(own)
    ring = np.searchsorted(RINGS, nearest, side="right") - 1
    ring = np.minimum(ring, len(RINGS) - 1)  # infinitely far: none is empty
    found = []
    for number in range(len(RINGS)):
        at = seen & (ring == number)
        pickups, mine, came = table.observed[at].sum(), own[at].sum(), joint.background[at].sum()
        found.append((pickups, pickups / mine, pickups / (mine + came), np.sqrt(pickups) / (mine + came)))
    names = [f"{int(a)}-{int(b)} m" for a, b in pairwise(RINGS[:-1])] + ["farther", "none empty"]
    result = pd.DataFrame(found, index=names, columns=["pickups", "over own riders", "over own and walkers", "se"])
    middle = (np.array(RINGS[:5]) + np.array(RINGS[1:6])) / 2
    draws = joint.walking.draws(400, np.random.default_rng(0), middle)
    curve = {"learnt w": joint.walking(middle), "sd": draws.std(axis=0), "served": served(joint)}
    return result.join(pd.DataFrame(curve, names[:5]))


def served(joint: JointCity) -> list[float]:
    """Riders of an empty zone who are served at one other zone with stock, by ring: w less those served nearer."""
    walks, found = joint.walks, []
    riders = joint.rate[walks.source, walks.bin] * walks.out
    chance = walks.chances(joint.walking)
    for near, far in pairwise(RINGS[:-1]):
        at = (walks.distance >= near) & (walks.distance < far) & (walks.available > STOCKED)
        found.append(float(np.sum((riders * chance)[at]) / max(np.sum(riders[at]), 1e-9)))
    return found


if __name__ == "__main__":
    main()
