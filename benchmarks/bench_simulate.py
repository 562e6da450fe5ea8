"""How long it takes to simulate a city: 100 stations for a year should take less than two minutes."""

from __future__ import annotations

import time

from unmet.simulate import simulate_city


def main() -> None:
    for stations, days in ((40, 120), (100, 365)):
        start = time.process_time()
        summary = simulate_city(stations, days, seed=1).summary()
        seconds = time.process_time() - start
        print(
            f"simulate {stations:4d} stations x {days} days: {seconds:5.1f} s of CPU, "
            f"{summary['wanted']:,} wanted trips, {1e6 * seconds / summary['wanted']:.1f} µs each"
        )


if __name__ == "__main__":
    main()
