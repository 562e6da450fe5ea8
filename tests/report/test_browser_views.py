"""Views of the page: the choice of area, days and hours, links, words; and accessibility by axe-core."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

# From the registry of npm, with the hash that it publishes. MPL-2.0; used here, not shipped.
AXE = "https://registry.npmjs.org/axe-core/-/axe-core-4.10.3.tgz"
AXE_SHA512 = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="


@pytest.fixture(scope="session")
def axe(tmp_path_factory) -> str:
    """The script of axe-core; tests are skipped if it cannot be fetched."""
    kept = Path(tmp_path_factory.getbasetemp().parent, "axe-core-4.10.3.tgz")
    try:
        raw = kept.read_bytes() if kept.exists() else urllib.request.urlopen(AXE, timeout=30).read()
    except (urllib.error.URLError, TimeoutError) as error:
        pytest.skip(f"axe-core cannot be fetched from {AXE}: {error}")
    assert base64.b64encode(hashlib.sha512(raw).digest()).decode() == AXE_SHA512, f"{kept} is not axe-core 4.10.3"
    kept.write_bytes(raw)
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        return archive.extractfile("package/axe.min.js").read().decode()


@pytest.mark.slow
def test_axe_finds_no_serious_fault(plain_page, open_page, axe):
    opened = open_page(plain_page, bypass_csp=True)
    opened.page.evaluate(axe)
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        found = opened.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], [node["html"][:100] for node in rule["nodes"][:3]]) for rule in serious] == []


def data_of(page: Path) -> dict:
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


@pytest.mark.slow
def test_a_choice_is_followed_by_numbers_map_table_and_address(plain_page, open_page, plain_run):
    opened = open_page(plain_page)
    page = opened.page
    for name, value in (("area", "North"), ("days", "weekdays"), ("part", "morning")):
        page.select_option(f"#choice-{name}", value)
    page.wait_for_selector("body[data-choice='North|weekdays|morning']")
    found = {tuple(own["choice"]): own for own in data_of(plain_page)["story"]["choices"]}
    own = found["North", "weekdays", "morning"]
    text = page.locator("#cards").inner_text()
    assert f"{round(own['totals']['wanted']['mean']):,}" in text
    assert f"{own['observed']:,.0f}" in text
    zones = pd.read_parquet(plain_run.folder / "zones.parquet")
    north = zones.index[zones["area"] == "North"].tolist()
    for shown in ("#zone-table tbody tr", "#map .mark"):
        numbers = page.evaluate(f"Array.from(document.querySelectorAll('{shown}'), (e) => Number(e.dataset.zone))")
        assert sorted(numbers) == north
    totals = pd.read_parquet(plain_run.folder / "totals.parquet")
    part = totals[(totals["level"] == "zone_part") & (totals["days"] == "weekdays") & (totals["part"] == "morning")]
    lost = part[(part["quantity"] == "lost") & part["zone"].isin(zones["zone"][north])]["mean"]
    shown = [float(text.replace(",", "")) for text in opened.column(2)]
    assert sum(shown) == pytest.approx(lost.sum(), abs=0.05 * len(shown) + 0.5)
    assert "(in North, on weekdays, from 06:00 to 10:00)" in page.locator("#story-answer").inner_text()
    assert page.locator("#sentence").inner_text().startswith("In North, on weekdays, from 06:00 to 10:00, riders took ")
    assert "area=North&days=weekdays&part=morning" in page.url
    assert opened.complaints == []

    again = open_page(plain_page)
    again.page.goto(page.url + "&zone=SIM003&from=2024-03-05&to=2024-03-08")
    again.page.reload()
    again.page.wait_for_selector("body[data-ready=yes]")
    assert again.page.locator("#cards").inner_text() == text
    assert again.page.evaluate("document.body.dataset.zone") == str(zones["zone"].tolist().index("SIM003"))
    first, last = again.page.evaluate("document.getElementById('series').layout.xaxis.range")
    assert pd.Timestamp(first, unit="ms") == pd.Timestamp("2024-03-05")
    assert pd.Timestamp(last, unit="ms") == pd.Timestamp("2024-03-08")
    again.page.locator("#choice-reset").click()
    again.page.wait_for_selector("body[data-choice='||']")
    assert again.page.locator("#zone-table tbody tr").count() == len(zones)


@pytest.mark.slow
def test_a_choice_is_followed_by_plan_series_week_act_and_forecast(plain_page, open_page, plain_run):
    opened = open_page(plain_page)
    page = opened.page
    zones = pd.read_parquet(plain_run.folder / "zones.parquet")
    north = set(zones.index[zones["area"] == "North"])
    data = data_of(plain_page)
    page.select_option("#choice-area", "North")
    page.select_option("#choice-part", "evening")
    page.wait_for_selector("body[data-choice='North||evening']")
    # The plan: sums of the area's stations, and moves from and to them.
    plan = next(own for own in data["plan"]["areas"] if own["area"] == "North")
    lead = page.locator("#plan-lead").inner_text()
    assert f"stations in North would turn away {round(plan['totals']['now']['mean'])} riders" in lead
    assert "The plan is for the whole day" in lead
    moves = data["plan"]["moves"]
    touching = [k for k in range(len(moves["bikes"])) if {moves["source"][k], moves["target"][k]} & north]
    assert sum(moves["bikes"][k] for k in touching) == plan["moved"]
    assert [float(text) for text in opened.column(3, "#plan-moves")] == [moves["bikes"][k] for k in touching]
    options = page.evaluate("Array.from(document.getElementById('plan-choice').options, (o) => Number(o.value))")
    assert set(options) <= north
    # The series: only evening hours, with a band around the rate of the area.
    band, rate = page.evaluate("document.getElementById('series').data.slice(0, 2).map((t) => [t.x, t.y])")
    hours = pd.to_datetime([t for t, v in zip(*rate, strict=True) if v is not None], unit="ms").hour
    assert len(hours) > 10
    assert set(hours) == {16, 17, 18, 19}
    assert [v for v in band[1] if v is not None]
    # The table of where to act, and the forecast.
    when = opened.column(2, "#act-table")
    assert len(when) > 0
    assert {text[-5:-3] for text in when} <= {"16", "17", "18", "19"}
    sentences = {(own["days"], own["part"]): own["sentence"] for own in data["forecast"]["areas"][1]["sentences"]}
    expected = f"In North, from 16:00 to 20:00: {sentences[None, 'evening']}"
    assert page.locator("#forecast-lead").inner_text().startswith(expected)
    assert {text.split(", ")[1][:2] for text in opened.column(2, "#forecast-table")} <= {"16", "17", "18", "19"}
    for table in ("#act-table", "#forecast-table"):
        rows = f"document.querySelectorAll('{table} tbody tr')"
        assert set(page.evaluate(f"Array.from({rows}, (row) => Number(row.dataset.zone))")) <= north
    assert opened.complaints == []


def test_the_page_answers_what_people_ask(plain, plain_page):
    data = data_of(plain_page)
    everything = next(own for own in data["story"]["choices"] if own["choice"] == [None, None, None])
    plain.page.evaluate("location.hash = ''")
    plain.page.wait_for_selector("body[data-choice='||']")
    assert plain.page.locator("#story-answer").inner_text().startswith(everything["compare"][0]["sentence"])
    sentence = data["forecast"]["areas"][0]["sentences"][0]["sentence"]
    assert plain.page.locator("#forecast-lead").inner_text().startswith(sentence)
    assert plain.page.locator("#forecast-table tbody tr").count() == data["forecast"]["rows"]
    plain.page.locator("#words summary").click()
    assert "riders who found a zone open but empty" in plain.page.locator("#words").inner_text()
    plain.page.locator("#words summary").click()


def choose(opened, **some: str) -> None:
    """Make the page show a choice of area, days and part, or everything."""
    opened.page.evaluate("(hash) => { location.hash = hash; }", "&".join(f"{k}={v}" for k, v in some.items()))
    opened.page.wait_for_selector(
        f"body[data-choice='{'|'.join(some.get(name, '') for name in ('area', 'days', 'part'))}']"
    )


@pytest.mark.parametrize(("days", "count"), [("weekdays", 12), ("weekends", 4), ("", 16)])
def test_headline_and_tile_count_the_days_of_the_choice(plain, days, count):
    choose(plain, **({"days": days} if days else {}))
    assert f"trips in {count} days." in plain.page.locator("#sentence").inner_text()
    assert f"in {count} days" in plain.page.locator("#cards .figure").first.inner_text()


def test_the_keyboard_stays_where_it_was_after_a_choice(plain):
    page = plain.page
    choose(plain)
    where = "document.activeElement.closest('#cards, #choice, #zone, #areas')?.id"
    page.locator("#cards .times button").nth(1).press("Enter")
    plain.until("document.body.dataset.choice.split('|')[2] !== ''")
    plain.until(f"({where}) === 'cards'")
    page.locator("#choice-reset").press("Enter")
    plain.until(f"({where}) === 'choice'")
    row = page.locator("#areas-table tbody button").first
    row.press("Enter")
    plain.until("document.body.dataset.choice.split('|')[0] !== ''")
    plain.until(f"({where}) === 'areas'")
    choose(plain)
    plain.choose(lambda: page.locator("#zone-table tbody tr").first.click(), plain_first(plain))
    page.locator("#all-zones").press("Enter")
    plain.until(f"({where}) === 'zone'")


def plain_first(opened) -> int:
    return int(opened.page.locator("#zone-table tbody tr").first.get_attribute("data-zone"))


def test_show_all_brings_back_the_station_that_the_plan_began_with(plain):
    page = plain.page
    choose(plain)
    first = page.locator("#plan-choice").input_value()
    for area in ("North", "South"):
        choose(plain, area=area)
    page.locator("#choice-reset").click()
    page.wait_for_selector("body[data-choice='||']")
    assert page.locator("#plan-choice").input_value() == first


def test_areas_are_compared_where_the_page_says_whether_it_gets_better(plain, plain_page):
    choose(plain)
    found = {tuple(own["choice"]): own for own in data_of(plain_page)["story"]["choices"]}
    words = {"better": "better", "worse": "worse", "unclear": "no clear change"}
    verdicts = {area: found[area, None, None]["compare"][0]["verdict"] for area in ("North", "South")}
    assert len({*verdicts.values()}) == 2
    assert dict(zip(plain.column(1, "#areas-table"), plain.column(5, "#areas-table"), strict=True)) == {
        area: words[verdict] for area, verdict in verdicts.items()
    }
    lost = dict(zip(plain.column(1, "#areas-table"), plain.column(2, "#areas-table"), strict=True))
    assert lost == {area: f"{found[area, None, None]['totals']['lost']['mean']:,.0f}" for area in verdicts}
    choose(plain, days="weekends")
    weekends = dict(zip(plain.column(1, "#areas-table"), plain.column(2, "#areas-table"), strict=True))
    assert weekends == {area: f"{found[area, 'weekends', None]['totals']['lost']['mean']:,.0f}" for area in verdicts}
    choose(plain)


def test_a_search_without_a_match_says_so(plain):
    page = plain.page
    choose(plain, area="North")
    page.locator("#search").fill("no such zone anywhere")
    assert page.locator("#found").text_content() == "0 of 6"
    assert page.locator("#zone-table .message").is_visible()
    assert not page.locator("#zone-table thead").is_visible()
    page.locator("#search").fill("")
    assert not page.locator("#zone-table .message").is_visible()
    choose(plain)


CSV = {
    "#plan": ["riders gained, 5%", "Sure to gain"],
    "#where": ["Lost trips", "lost trips, 95%", "Share lost"],
    "#areas": ["lost trips, 5%", "change, points, 95%", "Zones in the sums"],
    "#story": ["lost", "lost, 5%", "share lost"],
    "#act": ["lost in total, 5%", "Time empty"],
    "#forecast": ["riders expected, 95%", "Risk to find nothing"],
}


def test_tables_to_take_along_have_plain_numbers(plain, plain_page):
    page = plain.page
    choose(plain)
    page.locator("#story-more").evaluate("(d) => { d.open = true; }")
    for section, columns in CSV.items():
        with page.expect_download() as download:
            page.locator(f"{section} .download").first.click()
        saved = pd.read_csv(download.value.path(), encoding="utf-8-sig")
        for name in columns:
            assert pd.api.types.is_numeric_dtype(saved[name]), (section, name)
        if section == "#where":
            zones = data_of(plain_page)["zones"]
            assert saved["lost trips, 95%"].sum() == pytest.approx(sum(zones["lost_q95"]), rel=1e-6)
            assert saved["Share lost"].max() == pytest.approx(max(zones["lost_share"]), rel=1e-6)
        if section == "#forecast":
            assert pd.to_datetime(saved["End"]).gt(pd.to_datetime(saved["Start"])).all()


def test_the_page_says_what_not_to_believe_and_why_plan_and_forecast_differ(plain, plain_page):
    choose(plain)
    data = data_of(plain_page)
    assert plain.page.locator("#doubts li").all_text_contents() == data["doubts"]
    assert plain.page.locator("#doubts").is_visible()
    now = data["plan"]["areas"][0]["totals"]["now"]
    text = plain.page.locator("#forecast-plan").inner_text()
    assert f"({round(now['mean'])} turned away): it counts the {round(now['no_dock'])} who find no dock too" in text
    assert not plain.page.locator("#plan-day").is_visible()  # no holiday
    assert plain.page.locator("#effects-lead").inner_text().startswith("Not known: the run has no weather.")


def test_the_zone_that_lost_most_is_named_on_the_map(plain, plain_page):
    zones = data_of(plain_page)["zones"]
    choose(plain)
    worst = max(range(len(zones["zone"])), key=lambda i: zones["lost_mean"][i])
    assert zones["name"][worst] in plain.page.locator("#map .labels text").all_text_contents()


def too_wide(opened) -> list[str]:
    """Tables that are wider than their place."""
    return opened.page.evaluate(
        "Array.from(document.querySelectorAll('.scroll')).filter((e) => e.scrollWidth > e.clientWidth + 1)"
        ".map((e) => `${e.id}: ${e.scrollWidth} in ${e.clientWidth}`)"
    )


def test_names_stay_different_and_tables_fit_on_a_phone_and_on_a_laptop(plain):
    plain.page.set_viewport_size({"width": 390, "height": 844})
    plain.until("document.getElementById('act-map').clientWidth < 400")
    plain.until("document.getElementById('act-map').layout.margin.l === 92")
    labels = plain.page.evaluate("document.getElementById('act-map').layout.yaxis.ticktext")
    assert too_wide(plain) == []
    plain.page.set_viewport_size({"width": 1400, "height": 900})
    plain.until("document.getElementById('act-map').layout.margin.l === 150")
    assert len(labels) > 5
    assert len({*labels}) == len(labels)
    assert too_wide(plain) == []
    cut = "Array.from(document.querySelectorAll('#zone-table .zone'), (e) => e.scrollHeight > e.clientHeight + 1)"
    assert not any(plain.page.evaluate(cut))
