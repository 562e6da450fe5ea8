"""From an operator's records to a panel of observed demand, exposure and stock-outs."""
