"""Two likelihoods of one's own: one from its logarithm alone, one with a hyper-parameter that is fitted and saved."""

# [start:quadrature]
import numpy as np
from scipy.special import log_ndtr, ndtr

from unmet import CensoredGP
from unmet.likelihoods import QuadratureLikelihood

rng = np.random.default_rng(0)
x = np.linspace(0, 10, 200)[:, None]
ran_out = rng.random(200) < ndtr(2 * np.sin(x[:, 0]))  # True, False: did the station run out that day?


def probit(obs, f):
    return log_ndtr(np.where(obs.lower == 1, f, -f))


def moments(f):
    return ndtr(f), ndtr(f) * ndtr(-f)


gp = CensoredGP(likelihood=QuadratureLikelihood(probit, moments=moments)).fit(x, ran_out.astype(float))
print(f"chance to run out at x = 1.6: {gp.predict([[1.6]])[0]:.2f} (true {ndtr(2 * np.sin(1.6)):.2f})")
# [end:quadrature]

# [start:own]
from dataclasses import dataclass, field

from unmet.kernels import Parameter
from unmet.likelihoods import LIKELIHOODS, Likelihood, Tilted


@dataclass(frozen=True)
class Averages(Likelihood):
    """Each y is the mean of ``exposure`` measurements, so its noise variance is ``noise_variance / exposure``."""

    noise_variance: Parameter = field(default_factory=lambda: Parameter(1.0, bounds=(1e-6, 1e6)))

    @property
    def parameters(self):
        return {"noise_variance": self.noise_variance}

    def exact_sites(self, obs):  # Gaussian in f: every row is conditioned on exactly, and EP has nothing to do
        tau = obs.exposure / self.noise_variance.array[0]
        return np.ones(len(obs), dtype=bool), tau, tau * obs.lower

    def tilted(self, obs, mean, var):  # log N(y | mean, var + noise) and its derivatives
        noise = self.noise_variance.array[0] / obs.exposure
        total = var + noise
        d1, d2 = (obs.lower - mean) / total, -1 / total
        log_z = -0.5 * (np.log(2 * np.pi * total) + (obs.lower - mean) ** 2 / total)
        by_log_noise = 0.5 * noise * (d1**2 + d2)
        return Tilted(log_z, d1, d2, noise / total, by_log_noise[:, None])

    def rate(self, f):
        return f

    def to_dict(self):
        return {"noise_variance": float(self.noise_variance.array[0])}

    @classmethod
    def from_dict(cls, description):
        return cls(Parameter(description["noise_variance"]))


LIKELIHOODS["averages"] = Averages  # the name for likelihood= and for files

measured = rng.integers(1, 20, 200)
y = np.sin(x[:, 0]) + rng.normal(scale=0.8 / np.sqrt(measured))
gp = CensoredGP(likelihood="averages").fit(x, y, exposure=measured)
gp.save("averages.unmet")
again = CensoredGP.load("averages.unmet")
print(f"noise of one measurement: {again.noise_variance_:.2f} (true 0.64)")
# [end:own]
