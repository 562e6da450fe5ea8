"""Damage files in many ways and read them: no crash, no hang, no more memory than allowed.

Run it with ``make fuzz`` or ``python tests/fuzz/fuzz.py --minutes 10 --seed 1``. A file that breaks a promise is kept
in ``tests/fuzz/cases``, and the reason is printed. `test_cases.py` reads all files of that folder again.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

from harness import run_case
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from kinds import KINDS

CASES = Path(__file__).parent / "cases"
_EXAMPLES = 12  # of one kind, before the next kind
# Texts at which readers of CSV, JSON, TOML and numbers stumble.
_TOKENS = [
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"', b"'", b",", b";", b"[" * 2000, b"]", b"{" * 2000,
    b"}", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"-1", b"1e400", b"9" * 400, b"9" * 5000, b"null", b"true",
    b"0000-00-00", b"2040-01-01 00:00:00", b"9999-12-31 23:59:59", b"294247-01-10 04:00:54", b"infinity",
    b"0.0000000001", b"../../x", b"%s%n", b"\xf0\x9f\x9a\xb2", b"\xc3\x28", b"A" * 70_000, b"stations", b"inf", b"-inf",
    b"2021-03-28 02:30:00", b"13/13/2021", b"[[", b"]]", b"=", b'""',
]  # fmt: skip
_VALUES = [
    b"null", b"true", b"-1", b"0", b"1.5", b"1e400", b"-1e308", b"NaN", b"Infinity", b"nan", b"inf", b"infinity",
    b"9" * 30, b"9" * 400, b"1e18", b"1e19", b"2147483648", b"-2147483649", b"1600000000000", b"[]", b"{}",
    b"[" * 500 + b"]" * 500, b'""', b'"x"', b'"\\ud800"', b'"\\u0000"', b'"a/../../b"', b'"\\\\"',
    b'"' + b"A" * 70_000 + b'"', b'"2040-01-01T00:00:00Z"', b'"0001-01-01T00:00:00+14:00"', b"2090-01-01 00:00:00",
    b"32/13/2021", b"07/01/21 08:00", b"24:00", b"1979-05-27",
]  # fmt: skip
_SEPARATORS = [bytes([c]) for c in b",:;[]{}\n="]
_PLACE = st.floats(0, 1, exclude_max=True)
_DAMAGE = st.one_of(
    st.tuples(st.just("flip"), _PLACE, st.integers(0, 7)),
    st.tuples(st.just("byte"), _PLACE, st.integers(0, 255)),
    st.tuples(st.just("cut"), _PLACE, _PLACE),
    st.tuples(st.just("end"), _PLACE, st.just(0)),
    st.tuples(st.just("repeat"), _PLACE, _PLACE),
    st.tuples(st.just("insert"), _PLACE, st.sampled_from(_TOKENS)),
    # Half of the damage: the file stays whole, and the value goes deep.
    *(st.tuples(st.just("value"), _PLACE, st.sampled_from(_VALUES)) for _ in range(6)),
)


def damaged(content: bytes, kind: str, place: float, how: object) -> bytes:
    """Damage a file at a place (a share of its length)."""
    at = int(place * len(content))
    if kind in ("flip", "byte"):
        assert isinstance(how, int)
        old = content[at : at + 1]
        new = bytes([old[0] ^ (1 << how)]) if kind == "flip" and old else bytes([how])
        return content[:at] + new + content[at + 1 :]
    if kind == "end":
        return content[:at]
    if kind in ("cut", "repeat"):
        assert isinstance(how, float)
        until = at + int(how * min(200, len(content) - at))
        part = b"" if kind == "cut" else content[at:until] * 2
        return content[:at] + part + content[until:]
    assert isinstance(how, bytes)
    if kind == "insert":
        return content[:at] + how + content[at:]
    # Replace one value: what lies between two separators.
    start = max(content.rfind(separator, 0, at) for separator in _SEPARATORS) + 1
    ends = [found for separator in _SEPARATORS if (found := content.find(separator, start)) >= 0]
    return content[:start] + how + content[min(ends, default=len(content)) :]


def fuzz(name: str, number: int, folder: Path, until: float) -> tuple[int, int]:
    """Read damaged files of a kind. Return the number of files and of faults."""
    kind, tried, faults = KINDS[name], 0, 0
    examples = kind.examples(folder)

    @seed(number)
    @settings(
        max_examples=_EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(examples), st.lists(_DAMAGE, min_size=1, max_size=6))
    def attack(content: bytes, damage: list[tuple[str, float, object]]) -> None:
        nonlocal tried, faults
        if time.monotonic() > until:
            return
        for how in damage:
            content = damaged(content, *how)
        path = folder / f"case{kind.ending}"
        path.write_bytes(content)
        outcome = run_case(kind.read, path, folder)
        tried += 1
        if outcome.fault is not None:
            faults += 1
            CASES.mkdir(exist_ok=True)
            kept = CASES / f"{name}-{number}-{tried}{kind.ending}"
            kept.write_bytes(content)
            print(f"{kept.name}: {outcome.fault}\n{outcome.output[-1500:]}", flush=True)

    attack()
    return tried, faults


def read_cases(folder: Path) -> int:
    """Read all kept files. Return the number of faults."""
    faults = 0
    cases = sorted(CASES.glob("*-*"))
    for name in {case.name.split("-", 1)[0] for case in cases}:
        KINDS[name].examples(folder)  # some readers need files beside the case
    for case in cases:
        kind = KINDS[case.name.split("-", 1)[0]]
        path = folder / f"case{kind.ending}"
        path.write_bytes(case.read_bytes())
        outcome = run_case(kind.read, path, folder)
        if outcome.fault is not None:
            faults += 1
            print(f"{case.name}: {outcome.fault}\n{outcome.output[-1500:]}", flush=True)
    return faults


def main() -> None:
    """Fuzz all kinds, or some, in turn until the time is over. Exit with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="time to run; default 5")
    parser.add_argument("--seed", type=int, default=None, help="first seed; default: a new one, which is printed")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only this kind; may be repeated")
    parser.add_argument("--cases", action="store_true", help="only read the files that are kept in tests/fuzz/cases")
    given_ = parser.parse_args()
    first = random.SystemRandom().randrange(10**6) if given_.seed is None else given_.seed
    until = time.monotonic() + 60 * given_.minutes
    totals = {name: [0, 0] for name in given_.kind or KINDS}
    number = first
    warnings.simplefilter("ignore")
    # Loaded once, not in every process. Nothing here starts a thread, which would not survive a fork.
    import unmet.cli
    import unmet.mobility.panel.build
    import unmet.pipeline.running  # noqa: F401
    from unmet import CensoredGP, TobitRegressor  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="unmet-fuzz-") as folder:
        tempfile.tempdir = folder  # also of the readers, so that nothing is left behind
        if given_.cases:
            sys.exit(read_cases(Path(folder)) > 0)
        while time.monotonic() < until:
            for name, total in totals.items():
                tried, faults = fuzz(name, number, Path(folder), until)
                total[0] += tried
                total[1] += faults
            number += 1
    for name, (tried, faults) in totals.items():
        print(f"{name:10} {tried:6,} files, {faults} faults")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"seeds {first} to {number - 1}, {(used.ru_utime + used.ru_stime) / 60:.0f} minutes of the processor")
    sys.exit(any(faults for _, faults in totals.values()))


if __name__ == "__main__":
    main()
