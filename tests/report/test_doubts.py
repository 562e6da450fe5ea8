"""What not to believe: each sentence where it is due, the gravest first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unmet.report.doubts import list_doubts
from unmet.report.source import open_run

BAD = {"name": "fits", "good": False, "sentence": "the fit of 1 zone (a) did not converge"}
GOOD = {"name": "left_out", "good": True, "sentence": "no zone is left out"}
HOLIDAY = {"name": "Memorial Day", "included": False}


@pytest.fixture(scope="module")
def source(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as opened:
        yield opened


def test_findings_come_first_and_what_is_always_true_last(source):
    found = list_doubts(source, [GOOD, BAD], {"holiday": HOLIDAY}, {"missing": "no rain"})
    assert found[0] == "The fit of 1 zone (a) did not converge."
    assert "Memorial Day" in found[1]
    assert found[2].startswith("The forecast lacks weather")
    assert found[-1].startswith("Intervals assume")
    assert not [text for text in found if "no zone is left out" in text]


def test_a_clean_run_has_only_what_is_always_true_and_what_its_zones_show(source):
    lost = source.zones["lost_mean"]
    zones = source.zones.assign(lost_q05=lost, lost_q95=lost, unknown_minutes=0)
    sure = list_doubts(replace(source, zones=zones), [GOOD], {"holiday": {**HOLIDAY, "included": True}}, None)
    assert len(sure) == 4  # the model is a baseline, and some hours of the week never had a vehicle
    assert sure[0].startswith("The model (weekly-mean) knows no weather")
    zones = zones.assign(lost_q95=3 * zones["lost_mean"], unknown_minutes=zones["available_minutes"])
    unsure = list_doubts(replace(source, zones=zones), [GOOD], {"missing": "no returns"}, None)
    some = int((zones["lost_mean"] >= 1).sum())
    assert any(f"for {some} of the {some} zones" in text for text in unsure)
    assert any(text.startswith("In 49% of the time it is unknown") for text in unsure)


def test_supply_that_could_not_be_computed_from_trips_is_not_said_to_be(source):
    computed = replace(source, summary={"trips": {"used": 1}})
    assert any("computed from trips" in text for text in list_doubts(computed, [], {}, None))
    zones = source.zones.assign(available_minutes=0, stockout_minutes=0, unknown_minutes=60)
    unknown = list_doubts(replace(computed, zones=zones), [], {}, None)
    assert not any("computed from trips" in text for text in unknown)
    assert any(text.startswith("In 100% of the time it is unknown") for text in unknown)
