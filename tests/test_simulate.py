"""The simulated city keeps its books: bikes, riders, records and truth agree to the unit."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from unmet import simulate as package
from unmet._exceptions import InputError
from unmet.mobility.panel import build_panel
from unmet.simulate import City, Settings, simulate_city
from unmet.simulate.city import _FILES
from unmet.simulate.demand import draw_riders, hour_of_week, layout, rates, weather
from unmet.simulate.operation import STOCK, Fate, History, operate
from unmet.simulate.troubles import Trouble, draw_troubles

TROUBLED = {  # everything at once, so that the books are hard to keep
    "stations": 12,
    "days": 28,
    "seed": 5,
    "walk_probability": 0.6,
    "walk_reach": 700.0,
    "shock_effect": 1.0,
    "breakage": 0.03,
    "unusable": 0.02,
    "briefly_unusable": 0.05,
    "fleet_share": 0.55,
    "closures": 2,
    "dead_stations": 4,
    "feed_gaps": 2,
}
STATE = ["num_bikes_available", "num_docks_available", "num_bikes_disabled", "num_docks_disabled"]


@pytest.fixture(scope="module")
def plain() -> City:
    """Nothing but riders, trucks and broken bikes: the log shows every change."""
    return simulate_city(stations=12, days=28, seed=3, breakage=0.02, walk_probability=0.3)


@pytest.fixture(scope="module")
def troubled() -> City:
    return simulate_city(**TROUBLED)


CROWDED = TROUBLED | {"fleet_share": 0.9, "rebalancing": 1.0, "demand": 150.0}  # trucks find no dock


@pytest.fixture(scope="module", params=[TROUBLED, CROWDED], ids=["troubled", "crowded"])
def troubled_history(request) -> tuple[Settings, np.ndarray, History]:
    settings = Settings(**request.param)
    place = layout(settings)
    riders = draw_riders(settings, place, rates(settings, place, weather(settings)))
    troubles = draw_troubles(settings, 3600 * len(settings.hours()))
    return settings, place.capacity, operate(settings, place, riders, troubles)


def posix(times: pd.Series, timezone: str | None = None) -> np.ndarray:
    moments = pd.DatetimeIndex(times)
    if timezone is not None:
        moments = moments.tz_localize(timezone)
    return moments.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)


def last_at_or_before(log: pd.DataFrame, column: str, times: np.ndarray) -> np.ndarray:
    """The value of one station's log in force at each time."""
    row = np.searchsorted(log["last_reported"].to_numpy(), times, side="right") - 1
    return log[column].to_numpy()[row]


# The books


def test_bikes_are_conserved_at_every_instant(troubled_history):
    _, _, history = troubled_history
    rode = history.started >= 0
    time = np.concatenate([history.stock[:, 0], history.started[rode], history.ended[rode], history.stops[:, 0]])
    # What a row of the log changes at its station: bikes there now, less those of the row before.
    log = pd.DataFrame(history.stock, columns=STOCK)
    bikes = log["rentable"] + log["disabled"] + log["unusable"]
    in_stations = bikes.groupby(log["station"]).diff().fillna(bikes)
    in_use, on_trucks = np.ones(rode.sum()), -history.stops[:, 2]
    change = np.concatenate([in_stations, in_use, -in_use, on_trucks])
    total = pd.Series(change).groupby(time).sum().sort_index().cumsum()
    assert len(total) > 10_000
    assert (total == history.fleet).all()


def test_no_station_holds_less_than_nothing_or_more_than_its_docks(troubled_history):
    _, capacity, history = troubled_history
    _, station, rentable, disabled, unusable = history.stock.T
    assert rentable.min() == 0  # it did run out: a bike taken from an empty station would make it negative
    assert disabled.min() == unusable.min() == 0
    assert disabled.max() > 0
    assert unusable.max() > 0
    room = capacity[station] - rentable - disabled - unusable
    assert room.min() == 0  # and it did fill up


def test_every_rider_who_left_came_home(troubled_history):
    _, _, history = troubled_history
    rode = history.started >= 0
    assert (history.ended[rode] > history.started[rode]).all()
    assert (history.end_station[rode] >= 0).all()
    assert (history.ended[~rode] == -1).all()
    assert (rode == np.isin(history.fate, [Fate.SERVED, Fate.WALKED])).all()


def test_the_log_shows_the_stock_that_trips_and_trucks_leave_behind(plain):
    start = posix(plain.truth["served_at"].dropna().sort_values())
    assert (posix(plain.trips["started_at"], plain.settings.timezone) == start).all()
    end = posix(plain.trips["ended_at"], plain.settings.timezone)
    moved = posix(plain.moves["time"])
    for ix, ident in zip(plain.stations["station_ix"], plain.stations["station_id"], strict=True):
        log = plain.status[plain.status["station_ix"] == ix]
        here = (plain.moves["station_id"] == ident).to_numpy()
        departures = np.sort(start[(plain.trips["start_station_id"] == ident).to_numpy()])
        arrivals = np.sort(end[(plain.trips["end_station_id"] == ident).to_numpy()])
        stops = np.cumsum(np.append(0, plain.moves["bikes"][here]))
        at = log["last_reported"].to_numpy()
        net = (
            np.searchsorted(arrivals, at, side="right")
            - np.searchsorted(departures, at, side="right")
            + stops[np.searchsorted(moved[here], at, side="right")]
        )
        bikes = log["num_bikes_available"].to_numpy() + log["num_bikes_disabled"].to_numpy()
        initial = bikes[0] - net[0]
        assert (bikes - net == initial).all()


def test_the_log_adds_up_to_the_capacity(troubled):
    capacity = troubled.stations["capacity"].to_numpy()[troubled.status["station_ix"]]
    assert (troubled.status[STATE].sum(axis=1).to_numpy() == capacity).all()
    assert (troubled.status[STATE] >= 0).all(axis=None)


def test_trucks_unload_all_that_they_load(troubled_history):
    _, _, history = troubled_history
    assert (history.stops[:, 2] < 0).sum() > 10
    assert history.stops[:, 2].sum() == 0


def test_a_closure_in_the_night_stops_the_trucks_from_loading():
    settings = Settings(seed=1, stations=12, days=4)
    place = layout(settings)
    riders = draw_riders(settings, place, rates(settings, place, weather(settings)))
    closes, opens = 86_400 + 2 * 3600, 86_400 + 12 * 3600  # an hour after the night was planned
    loads = [
        (stops[:, 0] >= closes) & (stops[:, 0] < opens) & (stops[:, 2] < 0)
        for troubles in ([], [Trouble("closure", None, closes, opens)])
        for stops in [operate(settings, place, riders, troubles).stops]
    ]
    assert loads[0].any()
    assert not loads[1].any()


# The truth


def test_every_wanted_trip_has_one_fate_and_every_trip_was_wanted(troubled):
    truth, trips, summary = troubled.truth, troubled.trips, troubled.summary()
    assert sum(summary[f] for f in ("served", "walked", "lost", "closed")) == summary["wanted"] == len(truth)
    assert min(summary[f] for f in ("served", "walked", "lost", "closed")) > 0
    rode = truth["fate"].isin(["served", "walked"])
    for column in ("ride_id", "served_at", "served_station_id"):
        assert (truth[column].notna() == rode).all()
    assert truth.loc[rode, "ride_id"].is_unique
    assert trips["ride_id"].is_unique
    joined = trips.merge(truth[rode], on="ride_id", validate="one_to_one")
    assert len(joined) == len(trips) == rode.sum()
    assert (joined["start_station_id"] == joined["served_station_id"]).all()
    assert (posix(joined["started_at"], troubled.settings.timezone) == posix(joined["served_at"])).all()


def test_wanted_trips_are_counted_in_their_station_hour(troubled):
    hour = troubled.truth["wanted_at"].dt.floor("h").rename("start")
    counted = troubled.truth.groupby(["station_id", hour]).size()
    table = troubled.true_rate.set_index(["station_id", "start"])["wanted"]
    assert table.sum() == len(troubled.truth)
    assert (table[table > 0].sort_index() == counted.sort_index()).all()


def test_served_riders_leave_at_once_and_walkers_take_as_long_as_the_way(troubled):
    truth = troubled.truth
    served, walked = truth[truth["fate"] == "served"], truth[truth["fate"] == "walked"]
    assert (served["served_station_id"] == served["station_id"]).all()
    assert (served["served_at"] == served["wanted_at"]).all()
    assert (walked["served_station_id"] != walked["station_id"]).all()
    place = troubled.stations.set_index("station_id")[["lat", "lon"]]
    a, b = (place.loc[walked[c]].to_numpy() for c in ("station_id", "served_station_id"))
    east = (a[:, 1] - b[:, 1]) * np.cos(np.deg2rad(40.72))
    metres = 111_320 * np.hypot(a[:, 0] - b[:, 0], east)
    seconds = (walked["served_at"] - walked["wanted_at"]).dt.total_seconds()
    direct = np.abs(seconds - metres / 1.3) < 2
    assert 0.8 < direct.mean() < 1
    assert (seconds[~direct] > metres[~direct] / 1.3).all()  # over a station with nothing to rent


def test_riders_are_lost_only_at_stations_without_a_bike(plain):
    lost = plain.truth[plain.truth["fate"] == "lost"]
    assert len(lost) > 500
    for ix, ident in zip(plain.stations["station_ix"], plain.stations["station_id"], strict=True):
        log = plain.status[plain.status["station_ix"] == ix]
        when = posix(lost.loc[lost["station_id"] == ident, "wanted_at"])
        # Within one second a return may follow the loss or a departure precede it.
        after, before = (last_at_or_before(log, "num_bikes_available", when - lag) for lag in (0, 1))
        assert (np.minimum(after, before) == 0).all()


def test_the_hours_of_an_untroubled_city_are_available_or_stockout(plain):
    shares = plain.true_rate["exposure"] + plain.true_rate["stockout"]
    np.testing.assert_allclose(shares, 1.0, atol=1e-12)
    assert plain.true_rate["exposure"].between(0, 1).all()


def test_true_exposure_is_what_a_second_by_second_count_finds(troubled_history, troubled):
    settings, _, history = troubled_history
    if settings != troubled.settings:
        troubled = simulate_city(**asdict(settings))
    begin = int(settings.hours()[0].timestamp())
    ids = troubled.stations["station_id"].to_list()
    closed = troubled.events[troubled.events["kind"] != "feed gap"]
    shares = troubled.true_rate
    inside = (shares["exposure"] % 1 > 0) & (shares["stockout"] > 0)
    partly_closed = shares["exposure"] + shares["stockout"] < 1
    assert partly_closed.any()
    sample = pd.concat([shares[inside].sample(15, random_state=1), shares[partly_closed].sample(15, random_state=1)])
    for row in sample.itertuples():
        hour = int(row.start.timestamp()) - begin
        seconds = np.arange(hour, hour + 3600)
        log = history.stock[history.stock[:, 1] == ids.index(row.station_id)]
        stock = log[np.searchsorted(log[:, 0], seconds, side="right") - 1, 2]
        shut = np.zeros(3600, dtype=bool)
        for event in closed.itertuples():
            if pd.isna(event.station_id) or event.station_id == row.station_id:
                shut |= (seconds >= event.start.timestamp() - begin) & (seconds < event.end.timestamp() - begin)
        assert row.exposure * 3600 == pytest.approx(np.sum((stock > 0) & ~shut))
        assert row.stockout * 3600 == pytest.approx(np.sum((stock == 0) & ~shut))


# Demand


def test_arrivals_are_poisson_with_the_true_rate():
    city = simulate_city(stations=20, days=56, seed=7, dispersion=0.0)
    table = city.true_rate
    clock = table["start"].dt.tz_convert(city.settings.timezone)
    groups = table[["rate", "wanted"]].groupby([clock.dt.day_of_week, clock.dt.hour]).sum()
    chi2 = ((groups["wanted"] - groups["rate"]) ** 2 / groups["rate"]).sum()
    assert 0.005 < stats.chi2(len(groups)).cdf(chi2) < 0.995
    # No extra variance in the single cells either.
    pearson = (table["wanted"] - table["rate"]) ** 2 / table["rate"]
    assert np.average(pearson, weights=table["rate"]) == pytest.approx(1.0, abs=0.03)


def test_dispersion_gives_negative_binomial_arrivals():
    table = simulate_city(stations=20, days=56, seed=7, dispersion=0.3).true_rate
    m, w = table["rate"], table["wanted"]

    def dispersion(counts: pd.Series | np.ndarray) -> float:
        return float(((counts - m) ** 2 - m).sum() / (m**2).sum())

    rng = np.random.default_rng(0)
    others = [dispersion(rng.negative_binomial(1 / 0.3, 1 / (1 + 0.3 * m.to_numpy()))) for _ in range(30)]
    assert dispersion(w) == pytest.approx(0.3, abs=3 * np.std(others))
    assert (w.sum() - m.sum()) / np.sqrt((m + 0.3 * m**2).sum()) == pytest.approx(0.0, abs=3)
    busy = m > 3  # the probability of nobody at all tells the negative binomial from other mixtures
    nobody = stats.nbinom.pmf(0, 1 / 0.3, 1 / (1 + 0.3 * m[busy]))
    assert (w[busy] == 0).sum() == pytest.approx(nobody.sum(), abs=3 * np.sqrt(nobody.sum()))


def test_pickups_over_exposure_find_the_demand_that_the_records_lack():
    # Where rates repeat every week, the plain weekly mean over exposure is right; nobody walks.
    city = simulate_city(
        stations=12, days=89, seed=2, start="2024-03-11",
        dispersion=0.0, weather_effect=0.0, trend_effect=0.0,
    )  # fmt: skip
    table = city.true_rate
    hour = city.trips["started_at"].dt.tz_localize(city.settings.timezone).dt.tz_convert("UTC").dt.floor("h")
    observed = city.trips.groupby(["start_station_id", hour]).size()
    observed.index.names = ["station_id", "start"]
    table = table.join(observed.rename("observed"), on=["station_id", "start"]).fillna({"observed": 0})
    assert table["observed"].sum() == len(city.trips)
    wanted = len(city.truth)
    assert 0.08 < 1 - len(city.trips) / wanted < 0.30

    how = hour_of_week(pd.DatetimeIndex(table["start"]).tz_convert(city.settings.timezone))
    cells = table.groupby(["station_id", how])
    seen, exposed, bins = cells["observed"].sum(), cells["exposure"].sum(), cells.size()
    estimate = (seen / exposed * bins).sum()
    assert estimate == pytest.approx(wanted, rel=0.01)

    whole = table[table["exposure"] == 1].groupby(["station_id", how[table["exposure"] == 1]])
    dropped = (whole["observed"].mean() * bins).sum()  # hours never whole count for nothing
    assert dropped < 0.97 * wanted


def test_pickups_are_a_poisson_process_stopped_by_supply():
    # Whatever moves the rate, observed - rate * exposure is a martingale of variance rate * exposure.
    city = simulate_city(stations=20, days=60, seed=4, dispersion=0.0)
    expected = (city.true_rate["rate"] * city.true_rate["exposure"]).sum()
    assert (len(city.trips) - expected) / np.sqrt(expected) == pytest.approx(0.0, abs=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_the_default_city_loses_8_to_15_percent(seed):
    summary = simulate_city(seed=seed).summary()
    assert 0.08 < summary["lost"] / summary["wanted"] < 0.15


def test_a_hard_city_loses_about_30_percent():
    summary = simulate_city(days=60, seed=21, fleet_share=0.2, rebalancing=0.0).summary()
    assert 0.25 < summary["lost"] / summary["wanted"] < 0.36


def test_a_holiday_is_ridden_like_a_sunday():
    hours = Settings(seed=1, start="2024-07-01", days=7).hours()
    how = hour_of_week(hours).reshape(7, 24)
    assert (how[3] == np.arange(144, 168)).all()  # Thursday the fourth
    assert (how[2] == np.arange(48, 72)).all()


def test_weather_moves_demand():
    city = simulate_city(stations=5, days=200, seed=1, start="2024-01-01", trend_effect=0.0)
    still = simulate_city(stations=5, days=200, seed=1, start="2024-01-01", trend_effect=0.0, weather_effect=0.0)
    ratio = (city.true_rate["rate"] / still.true_rate["rate"]).to_numpy()[: len(city.weather)]
    sky = city.weather
    dry = sky["precipitation_mm"] == 0
    assert ratio[(sky["temperature_c"] < 2) & dry].mean() < 0.5 * ratio[(sky["temperature_c"] > 20) & dry].mean()
    mild = sky["temperature_c"].between(12, 24)
    assert ratio[mild & ~dry].mean() < 0.9 * ratio[mild & dry].mean()


def test_the_trend_is_slow_and_every_station_has_its_own():
    options = {"stations": 5, "days": 200, "seed": 1}
    with_trend, without = (simulate_city(**options, trend_effect=e).true_rate["rate"] for e in (1.0, 0.0))
    drift = np.log(with_trend / without).to_numpy().reshape(5, -1)
    assert np.abs(np.diff(drift, axis=1)).max() < 1e-3  # per hour
    assert np.ptp(drift, axis=1).min() > 0.03
    assert np.linalg.matrix_rank(drift - drift.mean(axis=0), tol=1e-6) >= 2


# Time


def test_days_of_23_and_25_hours_have_so_many():
    assert len(Settings(seed=1, start="2024-03-10", days=1).hours()) == 23
    assert len(Settings(seed=1, start="2024-11-03", days=1).hours()) == 25
    assert len(Settings(seed=1, start="2024-11-03", days=1, timezone="UTC").hours()) == 24
    half = Settings(seed=1, days=2, timezone="Asia/Kolkata").hours()
    assert len(half) == 48
    assert half[0].hour == half[0].minute == 0


def test_trips_are_in_local_time_and_skip_the_hour_that_was_not():
    city = simulate_city(stations=10, days=3, seed=1, start="2024-03-09", demand=2000.0)
    local = city.trips["started_at"]
    assert local.dt.tz is None
    night = local[local.dt.day == 10].dt.hour.value_counts()
    assert night.get(1, 0) > 0
    assert night.get(2, 0) == 0
    assert night.get(3, 0) > 0


# The feed in trouble


def rows_within(city: City, event: pd.Series) -> pd.DataFrame:
    start, end = event["start"].timestamp(), event["end"].timestamp()
    log = city.status[(city.status["last_reported"] >= start) & (city.status["last_reported"] < end)]
    if pd.notna(event["station_id"]):
        log = log[log["station_ix"] == city.stations["station_id"].to_list().index(event["station_id"])]
    return log


def of_kind(city: City, kind: str) -> list[pd.Series]:
    return [event for _, event in city.events[city.events["kind"] == kind].iterrows()]


def test_in_a_closure_nobody_rents_and_available_bikes_turn_disabled():
    city = simulate_city(stations=12, days=28, seed=5, closures=2)
    assert len(of_kind(city, "closure")) == 2
    for event in of_kind(city, "closure"):
        rows = rows_within(city, event)
        assert set(rows["station_ix"]) == set(range(12))
        assert not rows["is_renting"].any()
        assert rows["is_returning"].all()
        assert (rows["num_bikes_available"] == 0).all()
        served = city.truth["served_at"].between(event["start"], event["end"], inclusive="left")
        assert not served.any()
        wanted = city.truth["wanted_at"].between(event["start"], event["end"], inclusive="left")
        assert (city.truth.loc[wanted, "fate"] == "closed").all()
        # The bikes that were there are there still, and come back when it opens.
        for ix in range(12):
            log = city.status[city.status["station_ix"] == ix]
            start, end = int(event["start"].timestamp()), int(event["end"].timestamp())
            bikes = log["num_bikes_available"] + log["num_bikes_disabled"]
            before, at = (bikes[log["last_reported"] <= t].iloc[-1] for t in (start - 1, start))
            assert abs(before - at) <= 1
            reopened = log[log["last_reported"] >= end].iloc[0]
            assert reopened["is_renting"]
            assert reopened["last_reported"] == end
    outside = city.status["last_reported"] >= of_kind(city, "closure")[-1]["end"].timestamp()
    assert city.status.loc[outside, "is_renting"].all()


def test_a_zero_station_shows_nothing_and_claims_to_rent(troubled):
    events = of_kind(troubled, "zero station")
    assert len(events) == 2
    for event in events:
        rows = rows_within(troubled, event)
        assert len(rows) > 5  # it goes on reporting
        assert (rows[["num_bikes_available", "num_docks_available"]] == 0).all(axis=None)
        assert rows["is_renting"].any()
        served = troubled.truth[troubled.truth["served_at"].between(event["start"], event["end"])]
        assert (served["served_station_id"] != event["station_id"]).all()


def test_a_silent_station_writes_nothing_and_then_reports(troubled):
    events = of_kind(troubled, "silent station")
    assert len(events) == 2
    for event in events:
        assert rows_within(troubled, event).empty
        served = troubled.truth[troubled.truth["served_at"].between(event["start"], event["end"])]
        assert len(served) > 0
        assert (served["served_station_id"] != event["station_id"]).all()


def test_in_a_feed_gap_nothing_is_written_and_riding_goes_on(plain):
    settings = asdict(plain.settings) | {"feed_gaps": 2}
    city = simulate_city(**settings)
    pd.testing.assert_frame_equal(city.trips, plain.trips)
    for event in of_kind(city, "feed gap"):
        assert rows_within(city, event).empty
        assert plain.truth["served_at"].between(event["start"], event["end"]).any()
        end = int(event["end"].timestamp())
        assert set(city.status.loc[city.status["last_reported"] == end, "station_ix"]) == set(range(12))
        kept = rows_within(plain, event)
        assert len(kept) > 0


def test_the_feed_as_a_whole_is_never_silent_for_half_an_hour(plain):
    gaps = np.diff(np.sort(plain.status["last_reported"].to_numpy(dtype=np.int64)))
    assert gaps.max() < 3600
    assert np.quantile(gaps, 0.999) < 1800


def test_nothing_comes_to_a_dead_station_and_no_truck_loads_at_a_closed_one(troubled):
    assert (troubled.moves["bikes"] < 0).any()
    for kind in ("silent station", "zero station", "closure"):
        for event in of_kind(troubled, kind):
            everywhere = pd.isna(event["station_id"])
            move = troubled.moves["time"].between(event["start"], event["end"], inclusive="left")
            there = everywhere | (troubled.moves["station_id"] == event["station_id"])
            assert (troubled.moves.loc[move & there, "bikes"] > 0).all()
            if everywhere:
                continue
            assert not (move & there).any()
            ended = troubled.trips["ended_at"].dt.tz_localize(troubled.settings.timezone)
            ended = ended.between(event["start"], event["end"], inclusive="left")
            assert ended.any()
            assert (troubled.trips.loc[ended, "end_station_id"] != event["station_id"]).all()


def test_the_log_has_one_row_per_station_and_second(troubled):
    assert not troubled.status.duplicated(["station_ix", "last_reported"]).any()


@pytest.mark.data
def test_the_log_has_the_columns_of_the_real_one(data_dir, plain):
    real = pd.read_parquet(data_dir / "citibike_jersey_city" / "station_status_2020-05_2022-06.parquet")
    assert plain.status.dtypes.to_dict() == real.dtypes.to_dict()
    assert list(plain.status.columns) == list(real.columns)


def test_trips_have_the_newest_header():
    header = (
        "ride_id,rideable_type,started_at,ended_at,start_station_name,start_station_id,end_station_name,"
        "end_station_id,start_lat,start_lng,end_lat,end_lng,member_casual"
    )
    assert ",".join(simulate_city(stations=3, days=2, seed=1).trips.columns) == header


# Seeds and streams


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path):
    trouble = {"closures": 1, "dead_stations": 2, "feed_gaps": 1, "walk_probability": 0.5}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        simulate_city(8, 12, **trouble, seed=seed).save(tmp_path / name)
    for file in [*_FILES.values(), "settings.json"]:
        a, b, c = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert a == b, file
        assert a != c, file


@pytest.mark.parametrize(
    "option",
    [
        {"walk_probability": 0.7},
        {"walk_reach": 1000.0},
        {"breakage": 0.1},
        {"rebalancing": 0.0},
        {"fleet_share": 0.8},
        {"closures": 1},
        {"dead_stations": 3},
        {"feed_gaps": 1},
    ],
    ids=str,
)
def test_changing_supply_leaves_demand_alone(option):
    options = {"stations": 6, "days": 8, "seed": 9}
    before, after = simulate_city(**options), simulate_city(**{**options, **option})
    wanted = ["wanted_at", "station_id", "destination_id"]
    pd.testing.assert_frame_equal(before.truth[wanted], after.truth[wanted])
    pd.testing.assert_frame_equal(before.weather, after.weather)
    pd.testing.assert_frame_equal(before.stations, after.stations)
    pd.testing.assert_series_equal(before.true_rate["rate"], after.true_rate["rate"])


def test_changing_one_trouble_leaves_the_others_alone():
    options = {"stations": 6, "days": 16, "seed": 9, "dead_stations": 2, "feed_gaps": 1}
    before, after = simulate_city(**options), simulate_city(**options, closures=2)
    kept = after.events[after.events["kind"] != "closure"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before.events)


def test_walkers_save_trips():
    options = {"stations": 20, "days": 20, "seed": 6, "walk_reach": 600.0}
    stay, walk = (simulate_city(**options, walk_probability=p).summary() for p in (0.0, 1.0))
    assert stay["walked"] == 0
    assert walk["walked"] > 0.3 * stay["lost"]
    assert walk["lost"] < 0.7 * stay["lost"]


def test_walkers_go_where_there_is_a_bike():
    city = simulate_city(stations=20, days=20, seed=6, walk_reach=600.0, walk_probability=1.0)
    near = layout(city.settings).distance <= 600
    lost = city.truth[city.truth["fate"] == "lost"]
    logs = [log for _, log in city.status.groupby("station_ix")]
    when = posix(lost["wanted_at"])
    bikes = np.column_stack([last_at_or_before(log, "num_bikes_available", when) for log in logs])
    origin = lost["station_id"].map(city.stations.set_index("station_id")["station_ix"]).to_numpy()
    in_reach = ((bikes > 0) & near[origin]).any(axis=1)
    beaten = in_reach.sum()  # somebody took the last bike while they walked
    assert beaten < 0.1 * (city.truth["fate"] == "walked").sum()


def test_riders_who_find_no_dock_end_elsewhere():
    city = simulate_city(stations=12, days=10, seed=1, fleet_share=0.9)
    joined = city.trips.merge(city.truth, on="ride_id")
    elsewhere = joined["end_station_id"] != joined["destination_id"]
    assert 0.01 < elsewhere.mean() < 0.6
    roomy = simulate_city(stations=12, days=10, seed=1, fleet_share=0.1, rebalancing=1.0)
    joined = roomy.trips.merge(roomy.truth, on="ride_id")
    assert (joined["end_station_id"] == joined["destination_id"]).mean() > 0.97


def test_trucks_pull_the_city_towards_its_target():
    lost = [simulate_city(stations=12, days=20, seed=1, rebalancing=r).summary()["lost"] for r in (0.0, 1.0)]
    assert lost[1] < 0.9 * lost[0]
    assert simulate_city(stations=12, days=5, seed=1, rebalancing=0.0).moves.empty


# Settings and files


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"stations": 1}, "stations: expected the number of stations, a whole number from 2"),
        ({"stations": 2.5}, "got 2.5"),
        ({"days": 0}, "days: expected"),
        ({"seed": -1}, "seed: expected"),
        ({"seed": True}, "got True"),
        ({"demand": float("nan")}, "got nan"),
        ({"demand": "many"}, "got 'many'"),
        ({"walk_probability": 1.1}, "from 0 to 1; got 1.1"),
        ({"fleet_share": 1.0}, "bikes per dock"),
        ({"dead_stations": 41}, "at most the number of stations, 40; got 41"),
        ({"days": 10, "closures": 3}, "at most one in four days, 2 in 10 days; got 3"),
        ({"start": "yesterday"}, "YYYY-MM-DD; got 'yesterday'"),
        ({"start": "1969-12-31"}, "1971 to 2037"),
        ({"timezone": "Mars/Olympus"}, "IANA name such as 'America/New_York'; got 'Mars/Olympus'"),
        ({"timezone": "../etc/passwd"}, "IANA name"),
        ({"timezone": ""}, "IANA name"),
    ],
    ids=str,
)
def test_silly_values_are_refused_with_what_was_expected(option, said):
    with pytest.raises(InputError) as caught:
        simulate_city(**{"seed": 1, **option})
    assert said in str(caught.value)


def test_progress_is_told_of_every_day():
    seen: list[tuple[int, int]] = []
    simulate_city(stations=2, days=3, seed=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_saved_city_can_be_read_back(tmp_path):
    city = simulate_city(stations=4, days=8, seed=1, closures=1, walk_probability=0.5)
    folder = city.save(tmp_path / "deep" / "city")
    assert sorted(p.name for p in folder.iterdir()) == sorted([*_FILES.values(), "settings.json"])
    for name in ("trips", "status", "truth", "true_rate", "moves"):
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / f"{name}.parquet"), getattr(city, name), check_dtype=name == "status"
        )
    back = json.loads((folder / "settings.json").read_text())
    assert back.pop("fleet") == city.fleet
    assert Settings(**back) == city.settings
    assert list(folder.parent.iterdir()) == [folder]  # nothing left beside it


def test_a_failed_save_leaves_nothing_and_keeps_what_was_there(tmp_path, monkeypatch):
    city = simulate_city(stations=3, days=2, seed=1)
    city.save(tmp_path / "old")
    before = (tmp_path / "old" / "trips.parquet").read_bytes()

    def fail(table: pd.DataFrame, path: object) -> None:
        if str(path).endswith("truth.parquet"):
            raise OSError("disk full")

    monkeypatch.setattr(package.city, "_write", fail)
    with pytest.raises(OSError, match="disk full"):
        city.save(tmp_path / "new")
    with pytest.raises(OSError, match="disk full"):
        city.save(tmp_path / "old", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old" / "trips.parquet").read_bytes() == before


def test_a_folder_with_anything_else_is_never_overwritten(tmp_path):
    city = simulate_city(stations=3, days=2, seed=1)
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"not empty|more than a simulated city"):
            city.save(tmp_path, overwrite=overwrite)
    with pytest.raises(InputError, match="is a file"):
        city.save(tmp_path / "thesis.tex", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    target = city.save(tmp_path / "city")
    with pytest.raises(InputError, match="--overwrite"):
        city.save(target)
    assert city.save(target, overwrite=True) == target


def test_an_empty_folder_is_filled_and_a_quote_in_its_name_is_harmless(tmp_path):
    folder = tmp_path / "it's; a city"
    folder.mkdir()
    simulate_city(stations=3, days=2, seed=1).save(folder)
    assert len(pd.read_parquet(folder / "trips.parquet")) > 0


@pytest.mark.parametrize("timezone", ["Europe/Oslo", "Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Auckland"])
def test_a_city_lies_where_its_time_zone_says(timezone: str) -> None:
    """Readers of records refuse stations that are far from their time zone."""
    city = simulate_city(stations=2, days=2, seed=1, timezone=timezone)
    made = build_panel(city.trips, city.status, city.stations, timezone=timezone)
    assert made.panel["observed"].sum() == len(city.trips)


def test_realistic_is_true_or_false() -> None:
    with pytest.raises(InputError, match="realistic must be True or False; got 'no'"):
        simulate_city(2, 1, seed=0, realistic="no")  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"no setting 'fleetshare'. Did you mean 'fleet_share'\? Settings are"):
        simulate_city(2, 1, seed=0, fleetshare=0.2)
    with pytest.raises(InputError, match=r"There is no setting 'bogus'. Settings are seed, stations"):
        simulate_city(2, 1, seed=0, bogus=1)
