"""Trips of an operator with headers of its own."""

import pandas as pd

from unmet.mobility.panel import build_panel

trips = pd.DataFrame(
    {
        "Checkout Time": ["2024-06-01 08:05", "2024-06-01 08:40", "2024-06-01 09:10"],
        "Return Time": ["2024-06-01 08:20", "2024-06-01 08:55", "2024-06-01 09:30"],
        "Checkout Kiosk": ["Main St", "Main St", "Park Ave"],
        "Return Kiosk": ["Park Ave", "Park Ave", "Main St"],
    }
)

# [start:headers]
HEADERS = {
    "started_at": "Checkout Time",
    "ended_at": ["Return Time", "Returned At"],  # the first one that a file has is used
    "start_station": "Checkout Kiosk",
    "end_station": "Return Kiosk",
}
panel = build_panel(trips, timezone="America/Chicago", headers=HEADERS).panel
# [end:headers]

print(panel.groupby("zone")["observed"].sum().to_string())
