"""Start of the command `unmet`, also as ``python -m unmet``: signals are handled before the slow imports."""

from __future__ import annotations

import sys

from unmet._signals import stop_on_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line; see `unmet.cli.main`."""
    received = stop_on_signals()
    try:
        from unmet.cli import main as run_command

        run_command(received)
    except KeyboardInterrupt:  # while importing: nothing has begun
        sys.exit(128 + received[0] if received else 130)


if __name__ == "__main__":
    main()
