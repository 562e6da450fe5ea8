"""Super-hubs of the East Village, 2020–21: pickups and stock-outs from the status log, computed by `unmet.mobility`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import pandas as pd

from unmet.experiments._data import data_file, read_table
from unmet.experiments.bike_data import Say, Zone, zone_of
from unmet.mobility.panel.build import panel_of
from unmet.mobility.records.read import read_records

__all__ = ["CENTRES", "east_village_hubs", "hub_days", "label_any_station"]

FOLDER = "citibike_east_village"
ORIGIN = "https://github.com/cgettings/Citi-Bike-Station-Status (GBFS station status of Citi Bike, open data)"
WEATHER = "weather/nyc_2020-01_2021-07.csv"
_NEEDED = ("zone", "day", "pickups", "stockout")

CENTRES = ("Avenue D & E 3 St", "E 7 St & Ave C", "Rivington St & Ridge St")
RADIUS = "200m"
TIMEZONE = "America/New_York"
# Days with more than an hour closed or unknown are left out: their pickups are not those of a whole day.
LOST_MINUTES = 60


def east_village_hubs(label: Literal["whole", "any"], say: Say) -> list[Zone]:
    """Return the three hubs of two stations that ran out of bikes most often.

    Parameters
    ----------
    label : {"whole", "any"}
        A day is labelled if at some moment the whole hub was out of bikes ("whole"), or any of its stations ("any").
    say : callable
        Called with notes on the progress and on days that are left out.

    Returns
    -------
    list of Zone
    """
    status = data_file(f"{FOLDER}/station_status_2020-05_2022-06.parquet", ORIGIN, _NEEDED)
    stations = data_file(f"{FOLDER}/stations.csv", ORIGIN, _NEEDED)
    weather = _weather()
    places = read_table(stations, ("name", "lat", "lon"))
    centres = places[places.name.isin(CENTRES)][["name", "lat", "lon"]]
    end = (weather.index.max() + pd.Timedelta(days=1)).strftime("%Y-%m-%d")
    say("reading 5.2 million status records of the East Village …")
    with tempfile.TemporaryDirectory() as folder:
        points = Path(folder) / "points.csv"
        centres.to_csv(points, index=False)
        with read_records(status=status, stations=stations, timezone=TIMEZONE, progress=say) as records:
            # Labels are those of the status log: empty as listed, as in the paper, whatever could be rented.
            days = {"every": "1d", "end": end, "supply": "listed"}
            hubs = panel_of(records, say, zones=f"superhubs:{points}:{RADIUS}", **days)
            single = panel_of(records, say, zones="stations", **days) if label == "any" else None
    panel = hubs.panel
    if single is not None:
        panel = label_any_station(panel, hubs.zones, single.panel, single.zones)
    names = hubs.zones.set_index("zone").name
    zones = []
    for zone, own in panel.groupby("zone", sort=False):
        zones.append(zone_of(f"hub {names[zone]}", hub_days(own, f"hub {names[zone]}", say), weather, say))
    return sorted(zones, key=lambda z: [c in z.name for c in CENTRES], reverse=True)


def label_any_station(
    hubs: pd.DataFrame, zones: pd.DataFrame, single: pd.DataFrame, stations: pd.DataFrame
) -> pd.DataFrame:
    """Return the hubs' panel with a day censored if any station of the hub was out of bikes on it."""
    of_hub = zones[["zone", "stations"]].explode("stations").rename(columns={"zone": "hub", "stations": "station"})
    of_zone = stations[["zone", "stations"]].explode("stations").rename(columns={"stations": "station"})
    members = of_zone.merge(of_hub, on="station")
    out = single.merge(members, on="zone").groupby(["hub", "start"]).censored.any()
    keys = pd.MultiIndex.from_frame(hubs[["zone", "start"]])
    return hubs.assign(censored=out.reindex(keys, fill_value=False).to_numpy())


def hub_days(panel: pd.DataFrame, name: str, say: Say) -> pd.DataFrame:
    """Return the days of one zone's panel on which it was open and known, as day, pickups, stockout."""
    lost = panel.closed_minutes + panel.unknown_minutes
    usable = panel[(lost <= LOST_MINUTES) & panel.observed.notna()]
    say(f"{name}: {len(panel) - len(usable)} of {len(panel)} days left out (closed or unknown for over an hour)")
    return pd.DataFrame(
        {
            "day": pd.to_datetime(usable.start_local).dt.normalize(),
            "pickups": usable.observed.astype(float),
            "stockout": usable.censored.astype(bool),
        }
    )


def _weather() -> pd.DataFrame:
    """Read daily weather. The file's "(mm)" are inches and its "(C)" columns are wrong, so Fahrenheit is read."""
    rain, low, high = "Precipitation_per_day(mm)", "Minimum_daily_tempeture(F)", "Maximum_daily_tempeture(F)"
    columns = ("date", "Snow", rain, low, high)
    table = read_table(data_file(WEATHER, "daily weather of New York, 2020–21", _NEEDED), columns)
    weather = pd.DataFrame(
        {
            "temperature_max": (table[high] - 32) / 1.8,
            "temperature_min": (table[low] - 32) / 1.8,
            "rain_mm": table[rain] * 25.4,
            "snow_mm": table.Snow * 25.4,
        }
    )
    return weather.set_index(pd.to_datetime(table.date))
