"""Opening hours as given, and as GBFS publishes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records.opening import read_opening_hours

ZONE = "America/New_York"


def minute(local: str) -> int:
    return int(pd.Timestamp(local, tz=ZONE).timestamp()) // 60


def changes(spec: str, first: str, last: str) -> list[str]:
    """Local times at which the system opens or closes between two moments."""
    begin, end = minute(first), minute(last)
    shut = np.zeros(end - begin, dtype=bool)
    for b, e in read_opening_hours(spec).closed(begin, end - 1, ZONE) - begin:
        shut[b:e] = True
    at = np.flatnonzero(np.diff(shut.astype(int))) + 1
    return [f"{pd.Timestamp(60 * (begin + c), unit='s', tz='UTC').tz_convert(ZONE):%a %H:%M}" for c in at]


def document(path: Path, data: dict[str, Any]) -> str:
    path.write_text(json.dumps({"last_updated": 1, "ttl": 0, "version": "2.3", "data": data}), encoding="utf-8")
    return str(path)


def test_daily_hours_may_end_after_midnight_and_follow_the_wall_clock():
    assert changes("06:00-23:00", "2021-07-01", "2021-07-02") == ["Thu 06:00", "Thu 23:00"]
    assert changes("20:00-02:00", "2021-07-01", "2021-07-02") == ["Thu 02:00", "Thu 20:00"]
    assert changes("06:00-23:00", "2021-03-14", "2021-03-15") == ["Sun 06:00", "Sun 23:00"]  # 23 hours long


def test_several_daily_hours_add_up_and_documents_restrict_them(tmp_path):
    twice = "06:00-12:00, 14:00-20:00"
    assert changes(twice, "2021-07-01", "2021-07-02") == ["Thu 06:00", "Thu 12:00", "Thu 14:00", "Thu 20:00"]
    assert changes("06:00-14:00,12:00-20:00", "2021-07-01", "2021-07-02") == ["Thu 06:00", "Thu 20:00"]
    rows = [{"user_types": ["member"], "days": ["thu"], "start_time": "08:00:00", "end_time": "16:00:00"}]
    hours = document(tmp_path / "system_hours.json", {"rental_hours": rows})
    shut = ["Thu 08:00", "Thu 12:00", "Thu 14:00", "Thu 16:00"]
    assert changes(f"{twice},{hours}", "2021-07-01", "2021-07-03") == shut


def test_system_hours_are_open_for_any_user_and_calendars_for_their_season(tmp_path):
    rows = [
        {"user_types": ["member"], "days": ["fri", "sat"], "start_time": "06:00:00", "end_time": "26:00:00"},
        {"user_types": ["nonmember"], "days": ["sat"], "start_time": "08:00:00", "end_time": "23:59:59"},
    ]
    hours = document(tmp_path / "system_hours.json", {"rental_hours": rows})
    assert changes(hours, "2021-07-01", "2021-07-05") == ["Fri 06:00", "Sat 02:00", "Sat 06:00", "Sun 02:00"]
    season = {"start_month": 4, "start_day": 1, "end_month": 11, "end_day": 5}
    calendar = document(tmp_path / "system_calendar.json", {"calendars": [season]})
    assert changes(calendar, "2021-03-30", "2021-04-03") == ["Thu 00:00"]
    assert changes(calendar, "2021-11-04", "2021-11-08") == ["Sat 00:00"]
    assert changes(f"{calendar},10:00-12:00", "2021-03-31", "2021-04-02") == ["Thu 10:00", "Thu 12:00"]
    once = document(tmp_path / "once.json", {"calendars": [{**season, "start_year": 2020, "end_year": 2020}]})
    assert changes(once, "2021-03-30", "2021-04-03") == []
    winter = {"start_month": 11, "start_day": 1, "end_month": 2, "end_day": 28}
    over = document(tmp_path / "winter.json", {"calendars": [winter]})
    assert changes(over, "2021-02-27", "2021-03-03") == ["Mon 00:00"]


def test_opening_hours_of_version_3(tmp_path):
    text = {"opening_hours": "Mo-Fr 06:00-23:00; Sa,Su 08:00-12:00,14:00-18:00; Su off"}
    spec = document(tmp_path / "system_information.json", text)
    found = changes(spec, "2021-07-02", "2021-07-05")
    assert found == ["Fri 06:00", "Fri 23:00", "Sat 08:00", "Sat 12:00", "Sat 14:00", "Sat 18:00"]
    always = document(tmp_path / "always.json", {"opening_hours": "24/7"})
    assert changes(always, "2021-07-02", "2021-07-05") == []


def test_hours_over_midnight_stay_open_though_a_rule_of_the_next_day_follows(tmp_path):
    late = document(tmp_path / "late.json", {"opening_hours": "Fr,Sa 08:00-02:00; Su 10:00-22:00"})
    assert changes(late, "2021-07-02", "2021-07-05") == [
        "Fri 08:00", "Sat 02:00", "Sat 08:00", "Sun 02:00", "Sun 10:00", "Sun 22:00"
    ]  # fmt: skip
    off = document(tmp_path / "off.json", {"opening_hours": "Mo-Fr 20:00-02:00; Sa off; Th 06:00-07:00"})
    assert changes(off, "2021-07-01 12:00", "2021-07-05") == ["Fri 20:00", "Sat 02:00"]


def test_of_two_calendars_both_have_to_be_in_season(tmp_path):
    def calendar(name, first, last):
        season = {"start_month": first, "start_day": 1, "end_month": last, "end_day": 28}
        return document(tmp_path / name, {"calendars": [season]})

    both = f"{calendar('spring.json', 3, 5)},{calendar('summer.json', 4, 9)}"
    assert changes(both, "2021-02-01", "2021-12-01") == ["Thu 00:00", "Sat 00:00"]  # 1 April and 29 May


@pytest.mark.parametrize("spec", ["", "06:00-23:00,", ",06:00-23:00", "06:61-07:00", "06:00-07:60"])
def test_hours_with_a_blank_part_or_sixty_minutes_are_refused(spec):
    with pytest.raises(InputError, match=r"hours: expected opening hours such as 06:00-23:00"):
        read_opening_hours(spec)


def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"no file 'none.json'"):
        read_opening_hours("none.json")
    with pytest.raises(FileFormatError, match=r"data.rental_hours"):
        read_opening_hours(document(tmp_path / "a.json", {"stations": []}))
    with pytest.raises(FileFormatError, match=r"such as Mo-Fr"):
        read_opening_hours(document(tmp_path / "b.json", {"opening_hours": "sunrise-sunset"}))
    with pytest.raises(InputError, match=r"06:00-23:00"):
        read_opening_hours("always")


HOURS = {"days": ["mon"], "start_time": "06:00:00", "end_time": "23:00:00"}
SEASON = {"start_month": 4, "start_day": 1, "end_month": 10, "end_day": 31}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"rental_hours": []}, "a list of 1 to 100 under 'rental_hours', found 0"),
        ({"rental_hours": [HOURS] * 101}, "found 101"),
        ({"rental_hours": {"a": HOURS}}, "found dict"),
        ({"rental_hours": [HOURS | {"end_time": "99999999999:00:00"}]}, "hour: expected a whole number from 0 to 47"),
        ({"rental_hours": [HOURS | {"end_time": "-6:00:00"}]}, "hour: expected"),
        ({"rental_hours": [HOURS | {"end_time": "06:60:00"}]}, "minute or second: expected"),
        ({"rental_hours": [HOURS | {"days": []}]}, "is never open"),
        ({"calendars": []}, "a list of 1 to 100 under 'calendars'"),
        ({"calendars": [SEASON | {"start_month": 13}]}, "start_month: expected a whole number from 1 to 12"),
        ({"calendars": [SEASON | {"end_day": float("inf")}]}, "end_day: expected"),
        ({"calendars": [SEASON | {"start_year": 10**30}]}, "start_year: expected"),
        ({"opening_hours": "off"}, "is never open"),
        ({"opening_hours": "Mo " * 1_000}, "expected days and times"),
        ({"opening_hours": "Mo-Fr 08:00-20:00; " * 1_000}, "expected at most 10,000 signs"),
    ],
)
def test_hours_that_cannot_be_are_refused_in_a_short_sentence(tmp_path, data, said):
    with pytest.raises(InputError, match=said) as refused:
        read_opening_hours(document(tmp_path / "hours.json", data))
    assert len(str(refused.value)) < 500


def test_a_day_that_is_none_is_named(tmp_path):
    path = tmp_path / "system_hours.json"
    hours = {"user_types": ["member"], "days": ["mon", "someday"], "start_time": "06:00:00", "end_time": "23:00:00"}
    path.write_text(json.dumps({"data": {"rental_hours": [hours]}}))
    with pytest.raises(FileFormatError, match="'someday' is not a day of the week"):
        read_opening_hours(str(path))
