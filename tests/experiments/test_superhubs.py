import numpy as np
import pandas as pd
import pytest

from unmet.experiments._superhubs import CENTRES, _weather, east_village_hubs, hub_days, label_any_station


def panel(zone, censored, **columns):
    start = pd.date_range("2021-05-01 04:00", periods=len(censored), freq="D", tz="UTC")
    return pd.DataFrame(
        {
            "zone": zone,
            "start": start,
            "start_local": start.tz_convert("America/New_York").tz_localize(None),
            "observed": np.arange(len(censored), dtype=float),
            "closed_minutes": 0,
            "unknown_minutes": 0,
            "censored": censored,
        }
    ).assign(**columns)


def test_a_hub_is_labelled_when_any_of_its_stations_was_out_and_other_stations_do_not_count():
    hubs = panel("hub", [False, False, False])
    zones = pd.DataFrame({"zone": ["hub"], "stations": [["a", "b"]]})
    single = pd.concat([panel("A", [True, False, False]), panel("B", [False, True, False]), panel("C", [True] * 3)])
    stations = pd.DataFrame({"zone": ["A", "B", "C"], "stations": [["a"], ["b"], ["c"]]})
    labelled = label_any_station(hubs, zones, single, stations)
    assert labelled.censored.tolist() == [True, True, False]
    assert hubs.censored.tolist() == [False, False, False], "the caller's frame is not changed"


def test_days_that_were_closed_or_unknown_for_over_an_hour_are_left_out_and_said_to_be():
    said = []
    table = panel("hub", [True, False, True, False], closed_minutes=[0, 61, 0, 30], unknown_minutes=[0, 0, 600, 30])
    days = hub_days(table, "hub", said.append)
    assert days.day.tolist() == [pd.Timestamp("2021-05-01"), pd.Timestamp("2021-05-04")]
    assert days.pickups.tolist() == [0.0, 3.0]
    assert days.stockout.tolist() == [True, False]
    assert said == ["hub: 2 of 4 days left out (closed or unknown for over an hour)"]


@pytest.mark.data
def test_weather_of_2020_is_read_from_its_fahrenheit_and_inches(data_dir):
    weather = _weather()
    assert weather.temperature_max["2020-01-01"] == pytest.approx((42 - 32) / 1.8)
    assert (weather.temperature_max >= weather.temperature_min).all()
    assert 900 < weather.rain_mm["2020"].sum() < 1500  # New York has about 1,200 mm a year


@pytest.mark.data
def test_the_centres_are_stations_of_the_log(data_dir):
    names = pd.read_csv(data_dir / "citibike_east_village" / "stations.csv").name
    assert set(CENTRES) <= set(names)


@pytest.mark.data
@pytest.mark.slow
def test_labels_are_those_of_the_status_log(data_dir):
    """As documented: days on which the whole hub was listed as empty, not days without a bike that could be rented."""
    hubs = east_village_hubs("whole", lambda _: None)
    assert [f"{hub.stockout.mean():.0%}" for hub in hubs] == ["15%", "14%", "6%"]
