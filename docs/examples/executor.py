"""An executor of one's own: zones are estimated on any pool with the interface of `concurrent.futures`."""

# [start:executor]
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from itertools import islice

from unmet.execution import WorkerDied


def on_pool(pool):
    """Make an executor of a pool, such as `ProcessPoolExecutor` or `MPIPoolExecutor`."""

    def execute(function, items, jobs):
        items, under_way = iter(items), {}
        try:
            while True:
                for item in islice(items, jobs - len(under_way)):
                    under_way[pool.submit(function, item)] = item
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    error, item = future.exception(), under_way.pop(future)
                    if isinstance(error, BrokenExecutor):
                        error = WorkerDied(str(error))
                    yield item, future.result() if error is None else error
        finally:  # closed early: start nothing more
            for future in under_way:
                future.cancel()

    return execute


# [end:executor]

# [start:use]
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

if __name__ == "__main__":  # the processes of the pool import this file
    city = simulate_city(stations=3, days=28, seed=5, fleet_share=0.25)
    panel = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        result = LatentDemand("weekly-mean").fit(panel, jobs=2, executor=on_pool(pool))
    print(result.zones[["zone", "status", "lost_mean"]].round(1))
# [end:use]
