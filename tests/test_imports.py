"""Imports point one way, and the public names are the documented ones."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import unmet

ROOT = Path(unmet.__file__).parent

# What each part may import, besides itself. Everything may import the common ground.
GROUND = {"_normal", "_linalg", "_exceptions", "_typing", "_parameters"}
GP = {"kernels", "likelihoods", "inference", "evidence", "estimators"}
MAY_IMPORT = {
    "kernels": set(),
    "likelihoods": set(),
    "inference": {"kernels", "likelihoods"},
    "evidence": {"kernels", "likelihoods", "inference"},
    "estimators": {"kernels", "likelihoods", "inference", "evidence"},
}
# From here on, a part may import what is to its left.
DATA_CHAIN = ("schema", "records", "zones", "availability", "panel", "features", "demand", "report")
WITHOUT_GP = DATA_CHAIN[:-2]


def modules() -> list[str]:
    """Every module of the package, dotted, without the leading ``unmet.``."""
    paths = sorted(ROOT.rglob("*.py"))
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in paths]
    return [n.removesuffix(".__init__") for n in names if n != "__init__"]


def imported_by(module: str) -> set[str]:
    """Modules of `unmet` that a module imports anywhere in its text, without the leading ``unmet.``."""
    path = ROOT / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = ROOT / module.replace(".", "/") / "__init__.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "unmet"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            if node.module and node.module.split(".")[0] == "unmet":
                found |= {_module_or_parent(f"{node.module}.{a.name}", node.module) for a in node.names}
    return {name.removeprefix("unmet").removeprefix(".") for name in found} - {""}


def _module_or_parent(name: str, parent: str) -> str:
    """``from unmet.inference import dense`` imports a module; ``from unmet.kernels import Kernel`` a name of one."""
    path = ROOT.parent / name.replace(".", "/")
    return name if path.is_dir() or path.with_suffix(".py").exists() else parent


def part_of(module: str) -> str:
    return module.split(".")[0]


def test_the_walk_sees_the_imports_it_is_meant_to_judge() -> None:
    assert "kernels.base" in imported_by("kernels.stationary")
    assert "inference.dense" in imported_by("estimators._model")
    assert "kernels.structured" in imported_by("kernels.base")  # inside a function


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) in GROUND])
def test_the_common_ground_imports_nothing_above_it(module: str) -> None:
    assert {part_of(m) for m in imported_by(module)} <= GROUND


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) in MAY_IMPORT])
def test_the_numerical_core_imports_one_way(module: str) -> None:
    part = part_of(module)
    assert {part_of(m) for m in imported_by(module)} <= MAY_IMPORT[part] | GROUND | {part}


@pytest.mark.parametrize("module", [m for m in modules() if m.startswith("mobility.")])
def test_the_data_half_imports_one_way(module: str) -> None:
    part = module.split(".")[1]
    for other in imported_by(module):
        if part in WITHOUT_GP:
            assert part_of(other) not in GP, f"{module} imports {other}: the data half knows nothing of GPs"
        if other.startswith("mobility.") and part in DATA_CHAIN and other.split(".")[1] in DATA_CHAIN:
            assert DATA_CHAIN.index(other.split(".")[1]) <= DATA_CHAIN.index(part), f"{module} imports {other}"
        assert part_of(other) != "cli", f"{module} imports {other}"


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) not in {"cli", "pipeline", "report"}])
def test_what_is_reported_on_knows_nothing_of_the_report(module: str) -> None:
    assert "report" not in {part_of(m) for m in imported_by(module)}


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) == "report"])
def test_the_report_reads_runs_and_fits_nothing(module: str) -> None:
    assert {part_of(m) for m in imported_by(module)} <= GROUND | {"mobility", "report"}


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) != "cli"])
def test_only_the_command_line_knows_of_the_command_line(module: str) -> None:
    assert "cli" not in {part_of(m) for m in imported_by(module)}


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m) not in ("pipeline", "cli")])
def test_only_the_command_line_knows_of_whole_runs(module: str) -> None:
    assert "pipeline" not in {part_of(m) for m in imported_by(module)}


def test_public_names_exist_are_sorted_and_are_all_documented() -> None:
    names = unmet.__all__
    assert sorted(names) == sorted(set(names))
    assert {"CensoredGP", "TobitRegressor", "UnmetError", "InputError", "ConvergenceWarning"} <= set(names)
    for name in names:
        thing = getattr(unmet, name)
        assert name == "__version__" or thing.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("package", ["kernels", "likelihoods", "estimators"])
def test_packages_give_what_they_promise(package: str) -> None:
    module = importlib.import_module(f"unmet.{package}")
    for name in module.__all__:
        assert hasattr(module, name)


def test_importing_unmet_loads_no_optional_package() -> None:
    optional = ["matplotlib", "plotly", "h3", "holidays", "polars", "pyarrow.dataset", "duckdb", "typer"]
    code = f"import sys, unmet; print([m for m in {optional} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_takes_seconds_to_import_waits_until_it_is_asked_for() -> None:
    code = (
        "import sys, unmet; slow = ['sklearn', 'scipy.stats', 'pandas', 'duckdb']; "
        "print([m for m in slow if m in sys.modules]); from unmet import CensoredGP, ConvergenceWarning; "
        "print('sklearn' in sys.modules, set(unmet.__all__) <= set(dir(unmet)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[]", "True True"]


def test_the_help_of_the_command_line_does_not_wait_for_the_science() -> None:
    code = "import sys, unmet.cli; print([m for m in ('sklearn', 'scipy', 'pandas', 'duckdb') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'CensoredGB'"):
        _ = unmet.CensoredGB
