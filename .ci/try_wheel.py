"""Build the wheel, install it into an environment of its own, and run the demo from there, away from the sources."""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="unmet-wheel-") as folder:
        there = Path(folder)
        venv.create(there / "env", with_pip=True)
        pip = [str(there / "env" / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(there), str(ROOT)], check=True)
        (wheel,) = there.glob("unmet-*.whl")
        subprocess.run([*pip, "install", f"{wheel}[all]"], check=True)
        # Nothing of the checkout may be found: not by the folder, not by the environment.
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        demo = [str(there / "env" / "bin" / "unmet"), "demo", "--stations", "3", "--days", "28", "--out", "demo"]
        subprocess.run(demo, check=True, cwd=there, env=clean)
        assert (there / "demo" / "run" / "report.html").stat().st_size > 100_000
        print(f"{wheel.name} installs and runs")


if __name__ == "__main__":
    main()
