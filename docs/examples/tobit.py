"""The linear Tobit model, with standard errors."""

import numpy as np
import pandas as pd

from unmet import TobitRegressor

rng = np.random.default_rng(0)
X = pd.DataFrame({"temperature": rng.uniform(0, 30, 400), "rain": rng.exponential(2.0, 400)})
wanted = 40 + 2.5 * X["temperature"] - 4 * X["rain"] + rng.normal(scale=8, size=400)
tobit = TobitRegressor().fit(X, wanted.clip(upper=90), censored=wanted > 90)
print(tobit.summary().round(2))
