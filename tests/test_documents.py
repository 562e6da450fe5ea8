"""What the documents show is run, what they name exists, and what they link to is there."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from blocks import PAGES, blocks, refreshed, text_of
from transcripts import ROOT, agrees, environment, needs, run_step, steps

DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
NEEDS = {"on_dask": "distributed"}  # packages that are not installed with the extras
TRANSCRIPTS = sorted((DOCS / "transcripts").glob("*.console"))
CODE = {"python", "py", "pycon"}
SHELL = {"console", "bash", "sh", "shell"}
OTHER = {"text", "toml"}
# Targets that are too long for every run of the tests; CI runs the others.
BY_HAND = {"bench", "faults", "figures"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_python(source: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *source],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------ what is shown is run


def finds_the_hidden_peak(told: str) -> bool:
    served, wanted = map(int, re.search(r"served (\d+), wanted about (\d+)", told).groups())
    return served == 24 and 27 <= wanted <= 29


def finds_what_is_below_the_limit(told: str) -> bool:
    naive, ours = (float(number) for number in re.findall(r"seen: +([\d.]+)", told))
    true = float(re.search(r"true ([\d.]+)", told)[1])
    return abs(ours - true) < 0.5 < 2 < naive - true


def fits_both_likelihoods(told: str) -> bool:
    chance, true_chance, noise, true_noise = (float(number) for number in re.findall(r"[01]\.\d\d", told))
    return abs(chance - true_chance) < 0.05 and abs(noise - true_noise) < 0.1


def is_what_is_shown_of_the_walkers(told: str) -> bool:
    return agrees((DOCS / "transcripts" / "walkers.txt").read_text(encoding="utf-8"), told)


ANSWERS = {
    "readme": finds_the_hidden_peak,
    "likelihood": fits_both_likelihoods,
    "own_data": finds_what_is_below_the_limit,
    "walkers": is_what_is_shown_of_the_walkers,
}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_runs_and_finds_what_it_says(example: Path, tmp_path: Path) -> None:
    if example.stem in NEEDS:
        pytest.importorskip(NEEDS[example.stem])
    told = run_python([str(example)], tmp_path)
    assert ANSWERS.get(example.stem, bool)(told), told


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_every_transcript_prints_what_it_shows(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    found = steps(text)
    assert found
    if needs(text):
        data = request.getfixturevalue("data_dir")
        (tmp_path / "data").symlink_to(data)
        missing = [name for name in needs(text) if not (data / name).exists()]
        if missing:
            pytest.skip(f"no {', '.join(missing)} in {data}")
    for step in found:
        if step.is_run:
            printed = run_step(step, tmp_path)
            assert agrees(step.shown, printed), f"$ {step.command}\nprinted:\n{printed}\nbut shown is:\n{step.shown}"


def test_the_comparison_of_transcripts_can_fail() -> None:
    assert agrees("│ lost │ 688 │\n...\nReport: a.html", "┃ lost ┃ 690 ┃\nmore\nReport: a.html")
    assert not agrees("lost 688", "lost 1,688")
    assert not agrees("lost 688", "found 688")
    assert not agrees("lost 688", "lost 688 and more")
    assert agrees("Took 0.3 minutes; processor time 4 s.", "Took 2.1 minutes; processor time 31 s.")


def test_every_block_of_code_is_a_file_that_is_run() -> None:
    """A Python block is an example, a shell session a transcript, or a part: it names the file and has its text."""
    for page, language, body, source in blocks():
        assert language in CODE | SHELL | OTHER | {""}, f"{name_of(page)}: a block of {language!r}"
        if language not in CODE | SHELL:
            assert ">>>" not in body, f"{name_of(page)}: Python in a block that is not run"
            assert not re.search(r"^\$ ", body, re.MULTILINE), f"{name_of(page)}: a command in a block that is not run"
        else:
            assert source is not None, f"{name_of(page)}: this block does not say what file it came from:\n{body}"
            file = ROOT / source.partition("#")[0]
            assert file in (*EXAMPLES, *TRANSCRIPTS), f"{name_of(page)}: {source} is no file that the tests run"
        if source is not None:
            assert body == text_of(source), f"{name_of(page)}: {source} has changed: python tests/blocks.py"


def test_a_block_is_refreshed_from_its_file_and_others_are_left_alone() -> None:
    page = "<!-- from: docs/examples/own_data.py#fit -->\n```python\nstale\n```\n```text\nstale\n```\n"
    fresh = refreshed(page)
    assert fresh.count("stale") == 1
    assert text_of("docs/examples/own_data.py#fit") in fresh
    assert "[start:" not in fresh
    assert refreshed(fresh) == fresh


def test_every_example_and_transcript_is_shown() -> None:
    shown = {source.partition("#")[0] for *_, source in blocks() if source is not None}
    assert {name_of(path) for path in (*EXAMPLES, *TRANSCRIPTS)} <= shown


def test_no_page_needs_the_site_to_be_read() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "--8<--" not in text, f"{name_of(page)}: an include, which plain files do not follow"
        assert not re.search(r"<!-- made: \w+ -->\s*(<!-- /made -->|$)", text), f"{name_of(page)}: words are missing"


def test_ci_runs_what_newcomers_are_told_to_run() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    told = [s.command.split() for path in TRANSCRIPTS for s in steps(path.read_text(encoding="utf-8")) if not s.is_run]
    assert ["make", "demo"] in told
    for command in told:
        assert command[0] == "make", f"nothing runs {' '.join(command)!r}"
        assert command[1] in targets
        assert command[1] in BY_HAND | {"setup"} or " ".join(command) in script


# ------------------------------------------------------------------ what is named exists


@cache
def command_tree() -> dict[str, Any]:
    from typer.main import get_command

    from unmet.cli import app

    def walk(path: str, command: Any) -> dict[str, Any]:
        found = {path: {option for param in command.params for option in param.opts} | {"--help"}}
        for name, child in getattr(command, "commands", {}).items():
            found |= walk(f"{path} {name}", child)
        return found

    return walk("unmet", get_command(app))


def mentioned() -> Iterator[tuple[Path, str]]:
    """Every `unmet …` in a line of code of a page, whether it is run or not."""
    for page in [*PAGES, *TRANSCRIPTS]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"`(unmet [^`\n]+)`|^\$? ?(unmet [^`\n]+)$", text, flags=re.MULTILINE):
            yield page, line[0] or line[1]


def test_every_command_and_flag_that_is_mentioned_exists() -> None:
    seen = 0
    for page, line in mentioned():
        words = shlex.split(re.split(r"\s[|#]|…|\.\.\.", line.replace("[", " ").replace("]", " "))[0])
        command, known = "unmet", command_tree()
        for word in words[1:]:
            if f"{command} {word}" not in known:
                break
            command = f"{command} {word}"
        if len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            assert command != "unmet", f"{name_of(page)}: no command {words[1]!r} in {line!r}"
        for flag in (word.split("=")[0] for word in words if word.startswith("--")):
            assert flag in known[command] | known["unmet"], f"{name_of(page)}: {command} has no {flag}"
        seen += 1
    assert seen > 20


@pytest.mark.parametrize(("page", "least"), [("maths.md", 50), ("design/joint.md", 20)])
def test_every_formula_names_a_place_that_is_there(page: str, least: int) -> None:
    places = set(re.findall(r"`([\w/]+\.py):([\w.]+)\b", (DOCS / page).read_text(encoding="utf-8")))
    assert len(places) > least
    for file, name in places:
        path = ROOT / "src" / "unmet" / file
        assert path.is_file(), f"{page}: no {file}"
        assert set(name.split(".")) <= defined_in(path), f"{page}: no {name} in {file}"


def test_the_page_of_the_joint_estimate_has_the_numbers_of_the_code() -> None:
    from unmet.mobility.models import held_out, joint, lasting, walking
    from unmet.mobility.models.shock_stretches import _LEAST_STEPS

    text = " ".join((DOCS / "design" / "joint.md").read_text(encoding="utf-8").split())
    for told in (
        f"${joint._LEFT_OUT} + {joint._MORE_LEFT_OUT} \\log_2(n/40)$, between {joint._LEAST_LEFT_OUT} and 1",
        f"with {joint._DOUBT} more left out",
        f"standard deviation of {walking.PRIOR_SD} (`PRIOR_SD`)",
        ", ".join(str(value) for value in walking._MEASURED),
        f"0 from {walking.REACH:.0f} m on",
        f"{held_out.SHARE:.0%}".replace("%", " %") + " of the bins with some supply",
        f"{lasting.USUAL_LASTING} (`USUAL_LASTING`)",
        f"about {_LEAST_STEPS:,} bins",
    ):
        assert told in text


def defined_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def columns_in(section: str) -> list[str]:
    """Names in the first column of the first table below a heading of the file reference."""
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8").split(f"{section}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_panel_has_the_columns_that_are_documented() -> None:
    from unmet.mobility.panel.schema import SCHEMA

    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8").split("made: panel_columns -->\n")[1]
    rows = [f"| `{column.name}` | {column.type.name} | {column.meaning} |" for column in SCHEMA]
    assert text.split("\n<!-- /made -->")[0].splitlines()[2:] == rows


def test_estimates_have_the_columns_that_are_documented() -> None:
    import pandas as pd

    from unmet.mobility.models.zone_estimate import DemandModel, estimate_zone

    start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    panel = panel.assign(observed=2, available_minutes=60, stockout_minutes=0, closed_minutes=0, unknown_minutes=0)
    rows = estimate_zone(panel.assign(exposure=1.0, censored=False), DemandModel("weekly-mean", draws=20)).rows
    assert columns_in("### `demand.parquet`") == list(rows.columns)


def test_files_and_spellings_of_the_experiments_are_those_that_are_documented() -> None:
    from unmet.experiments import motorcycle, taxi
    from unmet.experiments._fits import MODELS
    from unmet.experiments._tables import COLUMNS

    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    section = page.split("### What a run writes")[1].split("\n## ")[0]
    told = set(re.findall(r"`([^`]+)`", section))
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "src/unmet/experiments").glob("*.py"))
    written = set(re.findall(r'write_table\(\s*"([^"{]+)"', code)) | set(re.findall(r'"(figure\w[\w-]*)"', code))
    assert {"table5", "figure1", "figure_sigmoid", "figure4_cgp"} <= written
    assert written <= told
    assert {*COLUMNS, *MODELS, *(r[0] for r in (*taxi.READINGS, *motorcycle.READINGS))} <= told


@pytest.mark.parametrize(
    "package",
    [
        *sorted(p for p in (ROOT / "src/unmet/mobility").iterdir() if (p / "__init__.py").exists()),
        ROOT / "src/unmet/pipeline",
        ROOT / "src/unmet/report",
    ],
    ids=lambda path: path.name,
)
def test_every_module_of_a_package_is_in_the_tree_of_the_architecture(package: Path) -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").split("## The tree")[1].split("## Where")[0]
    entry = re.search(rf"^ *{package.name}/ .*\n(?: {{10,}}.*\n)*", text, flags=re.MULTILINE)[0]
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    assert {name for name in modules if not re.search(rf"\b{name}\b", entry)} == set()


def test_every_state_and_reason_is_documented() -> None:
    from unmet.mobility.supply.states import REASONS

    text = (DOCS / "guide" / "labels.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, flags=re.MULTILINE))
    assert told == {(state, reason) for reason, state in REASONS.items()}


def test_every_model_is_in_the_table_of_choices() -> None:
    from unmet.mobility.models.registry import MODELS

    text = (DOCS / "guide" / "choosing.md").read_text(encoding="utf-8")
    assert [name for name in MODELS if f"`{name}`" not in text] == ["ncgp-a"]  # for the paper's sake only


# ------------------------------------------------------------------ figures and links


def images() -> Iterator[tuple[Path, str, str]]:
    for page in PAGES:
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            yield page, alt, target
        for tag in re.findall(r"<(?:img|source)[^>]*>", page.read_text(encoding="utf-8")):
            target = re.search(r'(?:src|srcset)="([^"]+)"', tag)[1]
            alt = re.search(r'alt="([^"]*)"', tag)
            yield page, alt[1] if alt else "a source of a picture that has its alt text in img", target


def test_every_figure_is_there_in_light_and_dark_with_words_for_those_who_do_not_see_it() -> None:
    used = set()
    for page, alt, target in images():
        file = (page.parent / target.split("#")[0]).resolve()
        assert file.is_file(), f"{name_of(page)}: no {target}"
        assert len(alt) > 40, f"{name_of(page)}: {target} needs a description"
        used.add(file)
        if ".light." in file.name and page.is_relative_to(DOCS):
            other = f"{target.split('#')[0].replace('.light.', '.dark.')}#gh-dark-mode-only"
            assert other in page.read_text(encoding="utf-8"), f"{name_of(page)}: {target} has no dark twin"
    figures = set((DOCS / "figures").iterdir())
    assert figures == used, f"on no page: {sorted(f.name for f in figures - used)}"


def test_every_figure_is_made_by_a_script() -> None:
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "drawing").glob("*.py"))
    for file in (DOCS / "figures").iterdir():
        assert f'"{file.name.split(".")[0]}"' in scripts, f"nothing draws {file.name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_project_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)}: no {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{name_of(page)}: {path or page.name} has no heading #{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h.lower()).strip()) for h in headings}


# ------------------------------------------------------------------ how it is written


def lines_that_can_be_broken(text: str) -> Iterator[tuple[int, str]]:
    """Lines of prose: not those of code, tables, pictures and formulas, which Markdown keeps on one line."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```") or line.strip() == "$$":
            inside = not inside
        elif not inside and not line.lstrip().startswith(("|", "![", "<")):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_line_of_markdown_is_longer_than_120_characters(page: Path) -> None:
    lines = lines_that_can_be_broken(page.read_text(encoding="utf-8"))
    assert [(number, len(line)) for number, line in lines if len(line) > 120] == []


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of all modules, and of classes and functions with public names."""
    package = ROOT / "src" / "unmet"
    for path in sorted(package.rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(module):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = getattr(node, "name", "")
            if not name.startswith("_"):
                yield f"{path.relative_to(package)}:{name or 'module'}", ast.get_docstring(node) or ""


def test_no_public_docstring_begins_with_what() -> None:
    found = dict(public_docstrings())
    assert len(found) > 500
    assert [name for name, text in found.items() if re.match(r"What\b", text)] == []
