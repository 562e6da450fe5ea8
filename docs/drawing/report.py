"""A picture of the report, for the README: a simulated city from records to page, seen by a real browser.

Needs Chromium (Debian's package ``chromium``). ``make figures`` runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from unmet.pipeline.demo import run_demo

TARGET = Path(__file__).parent.parent / "figures" / "report"
SIZE = (1400, 900)


def find_browser() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def main() -> None:
    browser = find_browser()
    if browser is None:
        sys.exit("The report's picture needs Chromium: apt-get install chromium. The others are drawn without it.")
    with tempfile.TemporaryDirectory(prefix="unmet-report-") as folder:
        page = run_demo(Path(folder), stations=24, days=56, seed=1).outcome.report
        picture = Path(folder) / "report.png"
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", window]
        subprocess.run([browser, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
        target = TARGET.with_suffix(".webp")
        Image.open(picture).convert("RGB").save(target, quality=82, method=6)
    print(f"report: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
