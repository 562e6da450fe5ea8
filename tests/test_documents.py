"""What the documents show is run: code blocks of the README, and every file of docs/examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def run(source: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, *source], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example, tmp_path):
    assert run([str(example)], tmp_path)


def test_the_python_of_the_readme_runs_and_finds_the_hidden_peak(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    told = run(["-c", blocks[0]], tmp_path)
    served, wanted = map(int, re.search(r"served (\d+), wanted about (\d+)", told).groups())
    assert served == 24
    assert 27 <= wanted <= 29


def test_ci_runs_what_the_readme_tells_a_newcomer_to_run():
    told = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert told
    assert all(f"make {target}" in script for target in told)
