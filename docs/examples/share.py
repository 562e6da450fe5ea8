"""Labels that say only "something was short": how much each labelled row shows of the truth is learnt."""

import numpy as np

from unmet import CensoredGP

rng = np.random.default_rng(0)
day = np.arange(200.0)[:, None]
wanted = 60 + 20 * np.sin(2 * np.pi * day[:, 0] / 30) + 4 * rng.normal(size=200)
ran_out = rng.random(200) < 0.4  # all that is known: the station ran out that day
served = np.where(ran_out, rng.beta(6, 4, 200), 1.0) * wanted

gp = CensoredGP(censoring="share").fit(day, served, censored=ran_out)
each = gp.predict_share(day, served, ran_out)
print(f"a labelled day shows {gp.share_.mean:.2f} ± {gp.share_.sd:.2f} of the truth (true 0.60 ± 0.15)")
print(f"wanted {wanted[ran_out].sum():.0f} on labelled days, estimated {each['value'][ran_out].sum():.0f}")

half_known = np.where(rng.random(200) < 0.5, np.nan, ran_out.astype(float))  # half of the labels are lost
gp = CensoredGP(censoring="share").fit(day, served, censored=half_known)
lost = np.isnan(half_known)
print(f"lost labels guessed right: {np.mean((gp.label_probability_ > 0.5)[lost] == ran_out[lost]):.0%}")
