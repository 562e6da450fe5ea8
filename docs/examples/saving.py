"""A fitted model in a file: arrays and JSON, nothing that could be executed."""

import numpy as np

from unmet import CensoredGP

x = np.linspace(0, 10, 50)[:, None]
gp = CensoredGP().fit(x, np.minimum(np.sin(x[:, 0]), 0.5), censored=np.sin(x[:, 0]) > 0.5)
gp.save("peak.unmet")
again = CensoredGP.load("peak.unmet")
print(np.abs(again.predict(x) - gp.predict(x)).max() < 1e-9)
