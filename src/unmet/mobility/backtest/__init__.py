"""Backtests: demand models compared on hidden weeks and on replays with supply cut."""

from unmet.mobility.backtest.compare import DEFAULT_MODELS, Backtest, ModelFunction, backtest

__all__ = ["DEFAULT_MODELS", "Backtest", "ModelFunction", "backtest"]
