"""The paper's synthetic example: three models fitted to records whose peaks were cut off.

The picture is written to ``out/synthetic.png``.
"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

from unmet import CensoredGP
from unmet.kernels import SquaredExponential
from unmet.metrics import coverage, rmse
from unmet.plots import plot_fit


def true_demand(x):
    """The latent function of the paper's section 4.2."""
    return 2 + np.sin(2 * x) / 2 + x / 10


rng = np.random.default_rng(0)
x = np.linspace(0, 10, 100)
wanted = true_demand(x) + rng.normal(scale=np.sqrt(0.1), size=100)
censored = np.sin(2 * x) >= 0  # at the peaks supply ran out …
served = np.where(censored, wanted * (1 - rng.uniform(0.2, 0.3, size=100)), wanted)  # … and a quarter went unserved
X = x[:, None]

models = {
    "NCGP (censoring ignored)": "ignore",
    "NCGP-A (censored rows dropped)": "drop",
    "CGP (censoring modelled)": "model",
}
table = Table(title="How far from the true demand?")
for heading in ("model", "RMSE", "RMSE at the peaks", "95 % band covers"):
    table.add_column(heading, justify="left" if heading == "model" else "right")
figure, axes = plt.subplots(1, 3, figsize=(15, 4), sharey=True, layout="constrained")
for ax, (name, censoring) in zip(axes, models.items(), strict=True):
    gp = CensoredGP(SquaredExponential(), censoring=censoring).fit(X, served, censored=censored)
    mean, std = gp.predict(X, return_std=True)
    truth = true_demand(x)
    covered = coverage(truth, mean - 1.96 * std, mean + 1.96 * std)
    table.add_row(name, f"{rmse(truth, mean):.3f}", f"{rmse(truth, mean, where=censored):.3f}", f"{covered:.0%}")
    plot_fit(gp, X, served, censored, truth=true_demand, ax=ax)
    ax.set_title(name)

out = Path("out")
out.mkdir(exist_ok=True)
figure.savefig(out / "synthetic.png", dpi=120)
Console().print(table)
print(f"Picture: {out / 'synthetic.png'}")
