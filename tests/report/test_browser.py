"""The page as a person meets it: in a real browser, opened from disk, with no network to ask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.small_runs import HOSTILE, run_on

WIDE, TABLET, PHONE = (1400, 900), (820, 1180), (390, 844)
# Traces of the series that hold what was observed: one for whole bins, one for those cut short.
OBSERVED = """() => {
  const all = document.getElementById('series').data;
  const traces = all.filter((t) => t.mode === 'markers' && t.marker.size && !t.marker.symbol);
  const seen = {};
  for (const t of traces) t.x.forEach((x, k) => { if (t.y[k] !== null) seen[x] = t.y[k]; });
  return seen;
}"""


def zone_numbers(run) -> dict[str, int]:
    zones = pd.read_parquet(run.folder / "zones.parquet")["zone"]
    return {zone: number for number, zone in enumerate(zones)}


def shown_title(opened) -> str:
    return opened.page.locator("#zone-title").text_content()


def names_of(run) -> list[str]:
    from unmet.report.source import open_run

    with open_run(run.folder, run.panel) as source:
        return source.zones["name"].tolist()


def test_it_opens_from_disk_with_no_complaint_and_no_request(plain, plain_page):
    assert plain.complaints == []
    assert plain.requests == [plain_page.resolve().as_uri()]
    assert plain.page.title() == "A city & its <riders>"


def test_the_headline_says_what_the_run_found(plain, plain_run):
    totals = json.loads((plain_run.folder / "run.json").read_text())["totals"]
    text = plain.page.locator("#cards").inner_text()
    for name in ("observed", "demand", "lost"):
        assert f"{round(totals[name]['mean']):,}" in text
    assert f"{round(totals['lost']['q05']):,} – {round(totals['lost']['q95']):,}" in text
    assert "true demand" in text
    assert "of the time known" in text


def test_the_map_has_every_zone_in_the_right_proportions(plain, city, plain_run):
    marks = plain.page.evaluate(
        """Array.from(document.querySelectorAll('#map .mark'),
               (m) => [Number(m.dataset.zone), m.cx.baseVal.value, m.cy.baseVal.value])"""
    )
    assert sorted(m[0] for m in marks) == list(range(12))
    at = {number: np.array([x, -y]) for number, x, y in marks}
    stations = city.stations.set_index("station_id")
    numbers = zone_numbers(plain_run)
    first, *others = sorted(numbers)
    scale = np.array([np.cos(np.radians(stations["lat"].mean())), 1.0])
    ratios = []
    for other in others:
        degrees = (stations.loc[other, ["lon", "lat"]] - stations.loc[first, ["lon", "lat"]]).to_numpy(dtype=float)
        true = np.hypot(*(degrees * scale))
        ratios.append(np.hypot(*(at[numbers[other]] - at[numbers[first]])) / true)
    assert np.ptp(ratios) / np.mean(ratios) < 0.01


def test_a_zone_clicked_on_the_map_shows_its_own_series(plain, plain_run):
    plain.choose(lambda: plain.page.locator("#all-zones").evaluate("(b) => b.click()"), -1)
    before = plain.page.evaluate(OBSERVED)
    zone, number = "SIM004", zone_numbers(plain_run)["SIM004"]
    plain.choose(lambda: plain.page.locator(f"#map .mark[data-zone='{number}']").click(force=True), number)
    after = plain.page.evaluate(OBSERVED)
    assert after != before
    panel = pd.read_parquet(plain_run.panel)
    own = panel[panel["zone"] == zone]
    middle = (own["start_local"] + pd.Timedelta(minutes=30)).to_numpy().astype("datetime64[ms]").astype(int)
    expected = {str(t): v for t, v in zip(middle, own["observed"], strict=True)}
    assert len(after) > 100
    assert all(expected[t] == v for t, v in after.items())
    assert shown_title(plain) == names_of(plain_run)[number]


def limits_of(x: list, y: list) -> tuple[list, list]:
    """Points of the lower and the upper limit of a band, which is drawn as one or more closed lines."""
    low, high = [[], []], [[], []]
    ends = [k for k, value in enumerate(x) if value is None]
    for first, last in zip([0, *(k + 1 for k in ends)], ends, strict=False):
        middle = (first + last) // 2
        for limit, part in ((high, slice(first, middle)), (low, slice(middle, last))):
            limit[0] += x[part]
            limit[1] += y[part]
    return low, high


def test_the_rate_and_its_band_are_those_of_the_run(plain, plain_run):
    number = zone_numbers(plain_run)["SIM004"]
    plain.choose(lambda: plain.page.locator(f"#zone-table tr[data-zone='{number}']").click(), number)
    band, rate = plain.page.evaluate(
        "document.getElementById('series').data.filter((t) => t.mode === 'lines').slice(0, 2).map((t) => [t.x, t.y])"
    )
    low, high = limits_of(*band)
    rows = pd.read_parquet(plain_run.folder / "demand.parquet").query("zone == 'SIM004'")
    panel = pd.read_parquet(plain_run.panel).query("zone == 'SIM004'")[["start", "start_local"]]
    rows = rows.merge(panel, on="start")
    rows["x"] = (rows["start_local"] + pd.Timedelta(minutes=30)).to_numpy().astype("datetime64[ms]").astype(int)
    rows = rows.drop_duplicates("x").set_index("x")
    step = rows["rate_q95"].max() / 500
    for (x, y), name in ((rate, "rate_mean"), (low, "rate_q05"), (high, "rate_q95")):
        both = pd.DataFrame({"x": x, "y": y}).set_index("x").join(rows[name], how="inner")
        assert len(both) > 100
        assert np.abs(both["y"] - both[name]).max() <= 1.01 * step


def test_stock_outs_are_shaded_where_they_were(plain, plain_run):
    panel = pd.read_parquet(plain_run.panel)
    zone = panel.groupby("zone")["stockout_minutes"].sum().idxmax()
    number = zone_numbers(plain_run)[zone]
    plain.choose(lambda: plain.page.locator(f"#zone-table tr[data-zone='{number}']").click(), number)
    shades = plain.page.evaluate(
        "document.getElementById('series').data.filter((t) => t.type === 'heatmap').map((t) => [t.x, t.z[0]])"
    )
    x, share = shades[1]
    own = panel[panel["zone"] == zone]
    at = own["start_local"].to_numpy().astype("datetime64[ms]").astype(int)
    expected = dict(zip(at, own["stockout_minutes"] / own["minutes"], strict=True))
    drawn = {t: v for t, v in zip(x[:-1], share, strict=True) if v is not None}
    assert drawn
    assert all(abs(expected[t] - v) <= 0.0101 for t, v in drawn.items())


def test_the_table_is_used_by_keyboard(plain, plain_run):
    page = plain.page
    plain.choose(lambda: page.locator("#all-zones").evaluate("(b) => b.click()"), -1)
    first, second = page.evaluate(
        "Array.from(document.querySelectorAll('#zone-table tbody tr'), (r) => Number(r.dataset.zone)).slice(0, 2)"
    )
    page.locator("#zone-table tbody button").first.focus()
    plain.choose(lambda: page.keyboard.press("Enter"), first)
    page.keyboard.press("ArrowDown")
    plain.choose(lambda: page.keyboard.press("Enter"), second)
    assert shown_title(plain) == names_of(plain_run)[second]
    assert page.locator("#zone-table tr[aria-current=true]").count() == 1
    # One stop for the Tab key, however many zones there are.
    assert page.locator("#zone-table tbody button[tabindex='0']").count() == 1


def test_the_map_is_used_by_keyboard(plain):
    page = plain.page
    page.locator("#map .mark[tabindex='0']").focus()
    here = int(page.evaluate("document.activeElement.dataset.zone"))
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        there = int(page.evaluate("document.activeElement.dataset.zone"))
        if there != here:
            break
    assert there != here
    plain.choose(lambda: page.keyboard.press("Enter"), there)


@pytest.mark.parametrize(
    ("label", "column", "position"),
    [
        ("Lost trips", "lost_mean", 2),
        ("Share lost", "lost_share", 4),
        ("Observed trips", "observed", 6),
        ("Demand", "demand_mean", 7),
    ],
)
def test_headers_sort_the_table(plain, plain_run, label, column, position):
    zones = pd.read_parquet(plain_run.folder / "zones.parquet")
    zones["lost_share"] = zones["lost_mean"] / zones["demand_mean"]
    values = dict(enumerate(zones[column]))
    head = plain.page.locator(f"#zone-table thead th:nth-child({position})")
    for expected in ("descending", "ascending"):
        while head.get_attribute("aria-sort") != expected:
            head.locator("button").press("Enter")
        assert plain.page.locator("#zone-table th[aria-sort=none]").count() == 7
        rows = plain.page.evaluate(
            "Array.from(document.querySelectorAll('#zone-table tbody tr'), (r) => Number(r.dataset.zone))"
        )
        ordered = [values[r] for r in rows]
        assert len(rows) == 12
        assert ordered == sorted(ordered, reverse=expected == "descending")


def test_searching_leaves_the_zones_that_match(plain, plain_run):
    names = names_of(plain_run)
    plain.page.locator("#search").fill("ash")
    assert sorted(plain.column(1)) == sorted(n for n in names if "ash" in n.lower())
    plain.page.locator("#search").fill("no such zone anywhere")
    assert plain.column(1) == []
    assert plain.page.locator("#found").text_content() == "0 of 12"
    plain.page.locator("#search").fill("")
    assert len(plain.column(1)) == 12


def test_the_week_shows_observed_beside_demand_in_the_same_colours(plain, plain_run):
    number = zone_numbers(plain_run)["SIM004"]
    plain.choose(lambda: plain.page.locator(f"#zone-table tr[data-zone='{number}']").click(), number)
    maps = plain.page.evaluate("document.getElementById('week').data.map((t) => [t.name, t.coloraxis, t.z])")
    assert [m[:2] for m in maps] == [["observed", "coloraxis"], ["demand", "coloraxis"], ["lost", "coloraxis2"]]
    totals = pd.read_parquet(plain_run.folder / "totals.parquet").query(
        "level == 'zone_hour_of_week' and zone == 'SIM004'"
    )
    panel = pd.read_parquet(plain_run.panel).query("zone == 'SIM004'").dropna(subset=["observed"])
    slot = panel["start_local"].dt.day_of_week * 24 + panel["start_local"].dt.hour
    bins = slot.value_counts().reindex(range(168))
    for name, _, z in maps:
        mean = totals[totals["quantity"] == name].set_index("hour_of_week")["mean"]
        drawn = np.array(z, dtype=float).ravel()
        # Totals of lost trips are those of 40 draws, the map's are their exact expectation.
        slack = (
            1e-3 if name == "observed" else 3 * totals[totals["quantity"] == "lost"]["sd"].to_numpy() / 40**0.5 + 0.05
        )
        assert (np.abs(drawn - (mean / bins).to_numpy())[bins.notna()] <= (slack + np.zeros(168))[bins.notna()]).all()


def test_a_choice_of_time_reaches_the_series(plain):
    def window() -> list[str]:
        return plain.page.evaluate("document.getElementById('series').layout.xaxis.range")

    first = window()
    plain.page.get_by_role("button", name="Earlier").click()
    plain.until(f"document.getElementById('series').layout.xaxis.range[0] < {first[0]}")
    plain.page.get_by_role("button", name="Show whole period").click()
    plain.until("(([a, b]) => b - a > 15 * 86400000)(document.getElementById('series').layout.xaxis.range)")
    box = plain.page.locator("#strip").bounding_box()
    plain.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    plain.page.mouse.down()
    plain.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 25, steps=5)
    plain.page.mouse.up()
    plain.until("(([a, b]) => b - a < 6 * 86400000)(document.getElementById('series').layout.xaxis.range)")
    plain.page.get_by_role("button", name="Show 1 week").click()
    assert plain.complaints == []


def test_what_to_act_on_is_ranked_and_leads_to_its_zone(plain):
    page = plain.page
    values = [float(text.replace(",", "")) for text in plain.column(3, "#act-table")]
    assert values
    assert values == sorted(values, reverse=True)
    zone = int(page.locator("#act-table tbody tr").nth(1).get_attribute("data-zone"))
    plain.choose(lambda: page.locator("#act-table tbody button").nth(1).click(), zone)
    # What was chosen down here is shown further up, and comes into sight.
    plain.until(
        "((top) => top >= -40 && top < 0.7 * innerHeight)(document.getElementById('zone').getBoundingClientRect().top)"
    )
    assert page.evaluate("document.getElementById('act-map').data[0].z.length") > 0


def test_how_it_was_done_is_told(plain):
    text = plain.page.locator("#how").inner_text()
    for words in ("Data used", "Time by state", "weekly-mean", "zones estimated", "Assumptions", "walks on"):
        assert words in text
    assert "48 bins after the records; not in any total" in text


def test_hostile_names_are_text_and_nothing_else(hostile_run, open_page, tmp_path):
    page = hostile_run.report(tmp_path / "report.html", title="</title><script>window.hacked = 1</script>")
    opened = open_page(page)
    assert opened.complaints == []
    assert opened.requests == [page.resolve().as_uri()]
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.title() == "</title><script>window.hacked = 1</script>"
    assert sorted(opened.column(1)) == sorted(HOSTILE)
    assert opened.page.locator("main script, main img").count() == 0
    for zone, name in enumerate(sorted(HOSTILE)):
        row = opened.page.locator(f"#zone-table tr[data-zone='{zone}']")
        opened.choose(row.click, zone)
        assert shown_title(opened) == name
    labels = opened.page.evaluate("Array.from(document.querySelectorAll('#act-map .ytick text'), (t) => t.textContent)")
    assert labels
    whole = [name for name in HOSTILE if len(name) <= 20]
    assert all(label in whole or any(name.startswith(label.rstrip("…")) for name in HOSTILE) for label in labels)
    # Sent to the mark itself: the page may still be scrolling to the zone, and a pointer at a place would miss it.
    opened.page.locator("#map .mark[data-zone='3']").dispatch_event("pointermove", {"clientX": 5, "clientY": 5})
    assert opened.page.locator("#tip strong").text_content() in HOSTILE
    assert opened.page.evaluate("window.hacked") is None
    assert opened.complaints == []


@pytest.mark.slow
def test_it_fits_a_laptop_and_a_phone_by_day_and_by_night(plain_page, open_page):
    opened = open_page(plain_page, *PHONE, color_scheme="light")
    for scheme, size in (("light", PHONE), ("dark", PHONE), ("dark", TABLET), ("dark", WIDE), ("light", WIDE)):
        opened.page.emulate_media(color_scheme=scheme)
        opened.page.set_viewport_size({"width": size[0], "height": size[1]})
        drawn = "document.querySelector('#series .main-svg').clientWidth"
        opened.until(f"Math.abs({drawn} - document.getElementById('series').clientWidth) < 2")
        # Nothing hangs over the edge: the page does not scroll sideways.
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        edges = opened.page.evaluate(
            """Array.from(document.querySelectorAll('main .card'), (c) => c.getBoundingClientRect())
                   .map((b) => [b.left, b.right])"""
        )
        assert all(left >= 0 and right <= size[0] + 0.5 for left, right in edges)
        ink, paper = opened.page.evaluate("((s) => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
        dark, light = (sum(int(v) for v in c[4:-1].split(",")) for c in (ink, paper))
        assert (dark < light) == (scheme == "light")
    assert opened.complaints == []


def test_it_prints_in_light_colours_whatever_the_screen(plain):
    plain.page.emulate_media(color_scheme="dark")
    documents = [plain.page.pdf(format=paper, print_background=True) for paper in ("A4", "Letter")]
    plain.page.emulate_media(color_scheme="light")
    for document in documents:
        assert document.startswith(b"%PDF")
        assert 3 <= document.count(b"/Type /Page\n") + document.count(b"/Type /Page ") <= 5
    assert plain.complaints == []
    assert not plain.page.evaluate("document.documentElement.classList.contains('printing')")


def _one_zone(city, folder: Path):
    # All stations within a kilometre or two: one super-hub.
    return run_on(city, folder, zones="superhubs:50km")


def _daily(city, folder: Path):
    return run_on(city, folder, every="1d", horizon=3)


def _cells(city, folder: Path):
    return run_on(city, folder, zones="h3:8")


def _nowhere(city, folder: Path):
    stations = city.stations.drop(columns=["lat", "lon"])
    trips = city.trips.drop(columns=["start_lat", "start_lng", "end_lat", "end_lng"])
    return run_on(city, folder, stations=stations, trips=trips)


def _trips_only(city, folder: Path):
    return run_on(city, folder, status=None)


def _nothing_lost(city, folder: Path):
    return run_on(city, folder, model="observed", every="15min")


def _failed(city, folder: Path):
    # Two stations that are not there all the time: nothing can be learnt of them.
    gone = city.stations["station_ix"].iloc[:2]
    status = city.status.copy()
    of_gone = status["station_ix"].isin(gone)
    status.loc[of_gone, ["num_bikes_available"]] = 0
    ends = city.trips[["start_station_id", "end_station_id"]]
    trips = city.trips[~ends.isin(["SIM001", "SIM002"]).any(axis=1)]
    return run_on(city, folder, status=status, trips=trips)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "zones", "says"),
    [
        (_one_zone, 1, "\n1 zone\n"),
        (_daily, 12, "trips per day"),
        (_cells, None, "All zones"),
        (_nowhere, 12, "no zone has a position"),
        (_trips_only, 12, "supply is computed from departures and arrivals"),
        (_nothing_lost, 12, "no trip was lost"),
        (_failed, 12, "2 could not be estimated"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_it_copes_with(make, zones, says, city, open_page, tmp_path):
    run = make(city, tmp_path / "made")
    opened = open_page(run.report(tmp_path / "report.html"))
    assert opened.complaints == []
    assert says in opened.page.locator("body").inner_text()
    rows = opened.page.locator("#zone-table tbody tr").count()
    assert rows == (zones or len(pd.read_parquet(run.folder / "zones.parquet")))
    marks = opened.page.locator("#map .mark").count()
    assert marks == (0 if make is _nowhere else rows)
    if make is _cells:
        assert opened.page.locator("#map path.mark").count() == rows
    last = rows - 1
    opened.choose(lambda: opened.page.locator(f"#zone-table tr[data-zone='{last}']").click(), last)
    opened.choose(lambda: opened.page.locator("#zone-table tr[data-zone='0']").click(), 0)
    if make is _failed:
        assert "No bin had anything to rent" in opened.page.locator("#zone-note").text_content()
        _check_room(opened)
    assert opened.complaints == []


def _check_room(opened):
    """The legend leaves the bar of the scale alone, and no text of the cards is cut off."""
    for width in (1400, 1000, 700, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.until("Math.abs(map.clientWidth - document.querySelector('#map svg').viewBox.baseVal.width) < 1")
        boxes = """(chosen) => Array.from(document.querySelectorAll(chosen), (e) => e.getBoundingClientRect())
            .filter((b) => b.width).map((b) => [b.left, b.top, b.right, b.bottom])"""
        bar = opened.page.evaluate(boxes, "#map .ruler, #map .grid text")
        assert len(bar) == 2
        for left, top, right, bottom in opened.page.evaluate(boxes, "#legend > *"):
            assert all(right <= b[0] or left >= b[2] or bottom <= b[1] or top >= b[3] for b in bar)
        cut = "Array.from(document.querySelectorAll('#cards .checks li'), (e) => e.scrollWidth > e.clientWidth)"
        assert not any(opened.page.evaluate(cut))


def test_what_prints_it_unattended_waits_until_it_is_drawn(plain_page, browser, tmp_path):
    """`chromium --headless --print-to-pdf report.html` prints at the page's load event."""
    page = browser.new_page()
    page.add_init_script("addEventListener('load', () => { window.readyAtLoad = document.body.dataset.ready; })")
    page.goto(plain_page.resolve().as_uri(), wait_until="load")
    assert page.evaluate("window.readyAtLoad") == "yes"
    assert page.locator("iframe").count() == 0
    page.close()


@pytest.mark.data
@pytest.mark.slow
def test_jersey_city_is_all_there(data_dir, open_page, tmp_path):
    from unmet.execution import serially
    from unmet.mobility.demand import DemandModel
    from unmet.mobility.panel import write_panel
    from unmet.mobility.runs import run_estimates
    from unmet.report import write_report

    folder = data_dir / "citibike_jersey_city"
    panel = write_panel(
        tmp_path / "panel.parquet",
        folder / "trips_2015-09_2021-04.parquet",
        folder / "station_status_2020-05_2022-06.parquet",
        folder / "stations.csv",
        timezone="America/New_York",
        start="2021-03-01",
        end="2021-04-01",
    )
    result = run_estimates(
        tmp_path / "panel.parquet", DemandModel("weekly-mean", draws=40), tmp_path / "run", executor=serially
    )
    opened = open_page(write_report(tmp_path / "run"))
    assert opened.complaints == []
    assert opened.page.locator("#map .mark").count() == len(panel.zones)
    assert opened.page.locator("#map .mark.failed").count() == len(result.failures)
    assert f"{round(result.info['totals']['observed']['mean']):,}" in opened.page.locator("#sentence").inner_text()


@pytest.mark.slow
def test_a_link_opens_the_same_zone(plain_page, plain_run, open_page):
    zones = pd.read_parquet(plain_run.folder / "zones.parquet")["zone"]
    opened = open_page(plain_page)
    opened.choose(lambda: opened.page.locator("#map .mark[data-zone='5']").click(force=True), 5)
    link = opened.page.evaluate("location.href")
    assert link.endswith(f"#zone={zones[5]}")
    opened.page.goto("about:blank")
    opened.page.goto(link)
    opened.page.wait_for_selector("body[data-ready=yes]")
    assert opened.page.evaluate("document.body.dataset.zone") == "5"


@pytest.mark.slow
def test_every_table_can_be_taken_along(hostile_run, open_page, tmp_path):
    opened = open_page(hostile_run.report(tmp_path / "report.html"))
    button = opened.page.locator("#where .download")
    with opened.page.expect_download() as download:
        button.click()
    saved = pd.read_csv(download.value.path(), encoding="utf-8-sig")
    assert download.value.suggested_filename == "zones.csv"
    # The limits of an interval are two columns.
    assert saved.shape == (len(HOSTILE), opened.page.locator("#zone-table thead th").count() + 1)
    assert not saved.iloc[:, 0].str.match(r"[=+@-]").any()  # spreadsheets run what begins like a formula
    assert opened.page.locator(".download").count() == opened.page.locator("main table").count()


def test_the_checks_are_under_the_headline(plain, plain_run, tmp_path):
    plain_run.report(tmp_path / "report.html", quality=tmp_path / "quality.json")
    checks = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    shown = plain.page.locator("#checks-list li").all_text_contents()
    assert shown == [check["sentence"] for check in checks]
    bad = [check["sentence"] for check in checks if not check["good"]]
    summary = plain.page.locator("#checks-summary").text_content()
    assert summary.startswith(f"Before you send this on: {'; '.join(bad)}." if bad else "Checks: nothing found.")
    for check in checks:
        if check["name"] in ("held_out", "simpler_assumptions"):
            assert check["sentence"][1:] in summary
