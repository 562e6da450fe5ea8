"""The panel: one row per zone and time bin, with observed trips, exposure and minutes by state."""

from unmet.mobility.panel.build import (
    PANEL_COLUMNS,
    REBALANCED_COLUMNS,
    Panel,
    PanelOptions,
    build_panel,
    panel_of,
    read_panel,
    write_panel,
)

__all__ = [
    "PANEL_COLUMNS",
    "REBALANCED_COLUMNS",
    "Panel",
    "PanelOptions",
    "build_panel",
    "panel_of",
    "read_panel",
    "write_panel",
]
