"""A data frame of one's own: values missing among the inputs and the outputs, and some known only from above."""

import numpy as np
import pandas as pd
import sklearn
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from unmet import CensoredGP
from unmet.kernels import Periodic, SquaredExponential

sklearn.set_config(enable_metadata_routing=True)

# [start:data]
# A month of an air sensor, every four hours. It reports nothing below its detection limit of 8,
# the thermometer beside it drops out now and then, and a few readings were never taken.
rng = np.random.default_rng(3)
hours = np.arange(0, 30 * 24, 4.0)
temperature = 12 + 5 * np.sin(2 * np.pi * (hours - 9) / 24) + rng.normal(size=hours.size)
truth = 12 + 6 * np.sin(2 * np.pi * hours / 24) - 0.4 * (temperature - 12)
reading = truth + rng.normal(size=hours.size)
frame = pd.DataFrame({"hour": hours, "temperature": temperature, "level": reading.clip(8.0)})
frame.loc[rng.random(hours.size) < 0.05, "temperature"] = np.nan
frame.loc[rng.random(hours.size) < 0.03, "level"] = np.nan
# [end:data]

# [start:fit]
known = frame.dropna(subset="level")  # a row without a reading says nothing: leave it out, knowingly
X, y = known[["hour", "temperature"]], known["level"]
censored = np.where(y <= 8.0, -1, 0)  # −1: the truth is at most what stands there

kernel = Periodic(24.0, columns=0) + SquaredExponential(columns=1)  # after the imputer columns have no names
gp = CensoredGP(kernel).set_fit_request(censored=True)
model = make_pipeline(SimpleImputer(), gp)
folds = KFold(5, shuffle=True, random_state=0)
predicted = cross_val_predict(model, X, y, cv=folds, params={"censored": censored})
# [end:fit]

low = censored < 0
naive = cross_val_predict(make_pipeline(SimpleImputer(), CensoredGP(kernel)), X, y, cv=folds)
print(f"{low.sum()} of {len(y)} readings are at the detection limit; {len(frame) - len(known)} were never taken")
for name, guess in (("limit taken for the truth", naive), ("limit taken for a limit", predicted)):
    print(
        f"{name:<27}mean where nothing was seen: {guess[low].mean():5.2f}  (true {truth[known.index][low].mean():.2f})"
    )
