"""Censoring labels through scikit-learn: a pipeline, cross-validation and a grid search."""

import numpy as np
import sklearn
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unmet import CensoredGP
from unmet.kernels import Matern, SquaredExponential
from unmet.metrics import rmse

sklearn.set_config(enable_metadata_routing=True)

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, size=120))
wanted = 20 + 8 * np.sin(x) + rng.normal(size=120)
supply = rng.uniform(18, 30, size=120)
served, censored = np.minimum(wanted, supply), wanted > supply
X = x[:, None]

# Say once that `fit` wants the labels and that `score` may have them; scikit-learn then carries them along.
gp = CensoredGP().set_fit_request(censored=True).set_score_request(censored=True)
model = make_pipeline(StandardScaler(), gp)
folds = KFold(5, shuffle=True, random_state=0)

predicted = cross_val_predict(model, X, served, cv=folds, params={"censored": censored})
print(f"5-fold RMSE to what was wanted: {rmse(wanted, predicted):.2f} trips")

search = GridSearchCV(model, {"censoredgp__kernel": [SquaredExponential(), Matern(nu=1.5)]}, cv=folds)
search.fit(X, served, censored=censored)
print(f"Best kernel: {search.best_params_['censoredgp__kernel']}")
