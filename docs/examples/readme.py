import numpy as np
from unmet import CensoredGP

rng = np.random.default_rng(0)
x = np.linspace(0, 10, 100)[:, None]
wanted = 20 + 8 * np.sin(x[:, 0]) + rng.normal(size=100)
supply = 24.0  # never more than 24 could be served
served, ran_out = np.minimum(wanted, supply), wanted > supply

gp = CensoredGP().fit(x, served, censored=ran_out)
mean, std = gp.predict(x, return_std=True)  # the demand that was there
print(f"peak: served {served.max():.0f}, wanted about {mean.max():.0f} ± {2 * std[mean.argmax()]:.0f}")
