"""Imports point one way, and the public names are the documented ones."""

from __future__ import annotations

import ast
import graphlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import unmet

ROOT = Path(unmet.__file__).parent

# Every part may import itself and the common ground.
GROUND = {"_normal", "_linalg", "_memory", "_numbers", "_exceptions", "_typing", "_parameters", "_signals", "_stamp"}
SCIENCE = {"kernels", "likelihoods", "inference", "evidence", "estimators"}
DATA = {f"mobility.{name}" for name in ("clock", "records", "zones", "supply", "panel", "features")}
ESTIMATES = {f"mobility.{name}" for name in ("models", "runs", "demand")}

# What each part may import besides. A part that is not in this table fails the test.
MAY_IMPORT: dict[str, set[str]] = {
    **{
        name: set()
        for name in (*GROUND, "_storage", "execution", "censoring", "decisions", "metrics", "kernels", "likelihoods")
    },
    "engines": {"execution"},
    "spreading": {"_storage", "execution"},
    "inference": {"kernels", "likelihoods"},
    "evidence": {"kernels", "likelihoods", "inference"},
    "estimators": {"_storage", "spreading"} | SCIENCE,
    "plots": {"estimators"},
    "mobility": set(),
    "mobility.clock": {"_storage"},
    "collect": {"_storage"},
    "mobility.records": {"_storage", "collect", "mobility.clock"},
    "mobility.zones": {"_storage", "mobility.records"},
    "mobility.supply": {"_storage", "mobility.clock"},
    "mobility.panel": {"_storage", "execution"}
    | {f"mobility.{name}" for name in ("clock", "records", "zones", "supply")},
    "mobility.features": {"_storage", "mobility.clock", "mobility.records", "mobility.panel"},
    "mobility.models": {"_storage", "spreading", "mobility.clock", "mobility.zones", "mobility.panel"} | SCIENCE,
    "mobility.runs": {"_storage", "execution", "spreading", "mobility.clock", "mobility.panel", "mobility.models"},
    "mobility.backtest": {
        "_storage",
        "execution",
        "spreading",
        "metrics",
        "mobility.panel",
        "mobility.models",
        "mobility.runs",
    },
    "mobility.demand": {"_storage", "execution"} | DATA | ESTIMATES,
    "mobility.planning": {"_storage", "decisions", "mobility.clock", "mobility.records", "mobility.zones"},
    "simulate": {"_storage"},
    "experiments": {"_storage", "execution", "censoring", "metrics", "mobility.panel", "mobility.records"} | SCIENCE,
    "report": {"_storage", "decisions"}
    | {f"mobility.{name}" for name in ("clock", "panel", "planning", "records", "runs", "supply")},
    "pipeline": {"_storage", "decisions", "engines", "execution", "mobility.planning", "report", "simulate"}
    | DATA
    | ESTIMATES,
    "cli": {"_storage", "collect", "engines", "execution", "experiments", "mobility.backtest", "mobility.planning"}
    | {"pipeline", "report", "simulate"}
    | DATA
    | ESTIMATES,
    "__main__": {"cli"},
}


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
    """The part that a module belongs to: a package of `mobility`, or a package or module of `unmet`."""
    names = module.split(".")
    return ".".join(names[:2]) if names[0] == "mobility" else names[0]


def test_the_walk_sees_the_imports_it_is_meant_to_judge() -> None:
    assert "kernels.base" in imported_by("kernels.stationary")
    assert "inference.dense" in imported_by("estimators._model")
    assert "kernels.structured" in imported_by("kernels.base")  # inside a function
    assert part_of("mobility.panel.build") == "mobility.panel"


@pytest.mark.parametrize("module", modules())
def test_imports_point_one_way(module: str) -> None:
    part = part_of(module)
    assert part in MAY_IMPORT, f"{module}: add {part!r} to the table of this test and to docs/architecture.md"
    imported = {part_of(other) for other in imported_by(module)}
    assert imported <= MAY_IMPORT[part] | GROUND | {part}, f"{module} imports what {part} may not"


@pytest.mark.parametrize("module", modules())
def test_underscore_modules_are_used_within_their_package_only(module: str) -> None:
    """A name of a module such as ``estimators._model`` may be used below ``estimators``; ``_normal`` everywhere."""
    for other in imported_by(module):
        parts = other.split(".")
        private = next((i for i, part in enumerate(parts) if part.startswith("_")), len(parts))
        home = ".".join(parts[:private])
        assert private == len(parts) or f"{module}.".startswith(f"{home}." if home else ""), f"{module} uses {other}"


def test_the_common_ground_and_the_table_are_free_of_cycles() -> None:
    order = list(
        graphlib.TopologicalSorter({part: others - {part} for part, others in MAY_IMPORT.items()}).static_order()
    )
    assert set(order) == set(MAY_IMPORT)


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
    optional = ["matplotlib", "plotly", "h3", "holidays", "polars", "pyarrow.dataset", "duckdb", "typer", "httpx"]
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
    slow = ["sklearn", "scipy", "pandas", "duckdb", "httpx"]
    code = f"import sys, unmet.cli; print([m for m in {slow} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'CensoredGB'"):
        _ = unmet.CensoredGB
