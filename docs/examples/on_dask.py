"""An executor for Dask: work is done by the workers of a `distributed.Client`."""

# [start:executor]
from itertools import islice

from unmet.execution import WorkerDied


def on_dask(client):
    """Make an executor of a Dask client. Its scheduler needs ``distributed.scheduler.allowed-failures: 0``."""
    from distributed import KilledWorker, wait

    def execute(function, items, jobs):
        items, under_way = iter(items), {}
        try:
            while True:
                for item in islice(items, jobs - len(under_way)):
                    under_way[client.submit(function, item, pure=False)] = item
                if not under_way:
                    return
                for future in wait(list(under_way), return_when="FIRST_COMPLETED").done:
                    item, error = under_way.pop(future), future.exception()
                    if isinstance(error, KilledWorker):
                        error = WorkerDied(str(error))
                    yield item, future.result() if error is None else error
        finally:  # closed early: start nothing more
            client.cancel(list(under_way))

    return execute


# [end:executor]

if __name__ == "__main__":
    import dask
    from distributed import Client

    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(dict(on_dask(client)(abs, [-1, -2], jobs=2)))
