"""The panel: one row per zone and time bin, with observed trips, exposure and minutes by state."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmet.mobility.panel.build import build_panel, panel_of, write_panel
    from unmet.mobility.panel.options import PanelOptions
    from unmet.mobility.panel.saving import Panel, read_panel
    from unmet.mobility.panel.schema import INFERRED_COLUMNS, PANEL_COLUMNS

__all__ = [
    "INFERRED_COLUMNS",
    "PANEL_COLUMNS",
    "Panel",
    "PanelOptions",
    "build_panel",
    "panel_of",
    "read_panel",
    "write_panel",
]

# The command line reads `options` to show its help: pandas and DuckDB are imported when they are needed (PEP 562).
_MODULES = {
    "PANEL_COLUMNS": "schema",
    "INFERRED_COLUMNS": "schema",
    "Panel": "saving",
    "PanelOptions": "options",
    "build_panel": "build",
    "panel_of": "build",
    "read_panel": "saving",
    "write_panel": "build",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'unmet.mobility.panel' has no attribute {name!r}")
    return getattr(import_module(f"unmet.mobility.panel.{_MODULES[name]}"), name)
