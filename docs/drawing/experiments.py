"""The figures of the page of the reproduction, from what ``unmet reproduce`` wrote to its default folders.

Run the experiments first, then ``python docs/drawing/experiments.py``, or with another folder than ``out``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent.parent / "figures"
WIDTH = 1200
# Name in docs/figures, and the figure of an experiment.
FIGURES = {
    "synthetic-four-models": "synthetic/figure1.png",
    "motorcycle-share": "motorcycle/figure_share.png",
    "bike-station-128": "bike-nyc/figure_station_128.png",
}


def main(arguments: list[str]) -> None:
    out = Path(arguments[0] if arguments else "out")
    for name, source in FIGURES.items():
        with Image.open(out / source) as picture:
            height = round(picture.height * WIDTH / picture.width)
            smaller = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        smaller.save(FOLDER / f"{name}.webp", quality=82, method=6)
        print(f"{name}: {(FOLDER / f'{name}.webp').stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
