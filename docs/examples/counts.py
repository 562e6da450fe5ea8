"""Counts with exposure: what an hour would have brought, had there been something to rent all along."""

import numpy as np
import pandas as pd

from unmet import CensoredGP
from unmet.kernels import Parameter, Periodic, SquaredExponential

rng = np.random.default_rng(0)
hours = pd.DataFrame({"hour": np.arange(24.0 * 28)})
rate = 4 * np.exp(0.9 * np.sin(2 * np.pi * hours["hour"] / 24))
exposure = np.where(rng.random(len(hours)) < 0.3 * rate / rate.max(), rng.uniform(0, 1, len(hours)), 1.0)
seen = rng.poisson(rate * exposure)  # riders who came while there was a vehicle

kernel = Periodic(Parameter(24.0, fixed=True), columns="hour") + SquaredExponential(columns="hour")
gp = CensoredGP(kernel, likelihood="negative-binomial").fit(hours, seen, exposure=exposure)
day = hours.iloc[:24]
per_hour, sd = gp.predict(day, return_std=True)  # riders per full hour
low, high = gp.predict_quantiles(day, [0.05, 0.95]).T  # whole numbers: how many may come

print(f"seen {seen.sum()}, wanted about {gp.predict(hours).sum():.0f} (true rate {rate.sum():.0f})")
print(f"06:00: {per_hour[6]:.1f} ± {sd[6]:.1f} an hour, 90 % of such hours between {low[6]:.0f} and {high[6]:.0f}")
