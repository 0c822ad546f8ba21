"""torchdiffeq: a posterior with low-rank weights, written as its users write it."""

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from .posterior_work import layers
from .torchdiffeq_ffjord import Augmented
from .work import Work

NONLINEARITIES = {"softplus": nn.functional.softplus, "tanh": torch.tanh}


class Net(nn.Module):
    """f(t, z) on a batch; every sample has its own U, V and b(x), all held as parameters."""

    def __init__(self, work: Work):
        super().__init__()
        given = layers(work)
        hold = lambda name: nn.ParameterList(torch.from_numpy(layer[name]) for layer in given)
        self.weight, self.time, self.bias, self.u, self.v, self.v_time, self.b = map(
            hold, ("weight", "time", "bias", "u", "v", "v_time", "b")
        )
        self.sigma, self.nfe = NONLINEARITIES[work.nonlinearity], 0

    def forward(self, t, z):
        self.nfe += 1
        last = len(self.weight) - 1
        for i in range(last + 1):
            y = nn.functional.linear(z, self.weight[i], self.bias[i] + t * self.time[i])
            inner = torch.bmm(self.v[i], z[:, :, None])[:, :, 0] + t * self.v_time[i]
            y = y + torch.bmm(inner[:, None, :], self.u[i])[:, 0] + self.b[i]
            z = self.sigma(y) if i < last else y
        return z


class Peer:
    ode = staticmethod(odeint_adjoint)

    def __init__(self, work: Work):
        torch.manual_seed(0)
        self.work, self.net, self.z = work, Net(work), torch.from_numpy(work.points())

    def _run(self, tolerance: float):
        self.net.nfe = 0
        times = torch.tensor([0.0, self.work.end_time])
        start = (self.z.clone(), torch.zeros(len(self.z)))
        field = Augmented(self.net, torch.randn_like(self.z))
        z, log_det = self.ode(field, start, times, rtol=tolerance, atol=tolerance, method="dopri5")
        return z[-1], log_det[-1]

    def solve(self, tolerance: float) -> dict:
        with torch.no_grad():
            z, _ = self._run(tolerance)
        return {"nfe": self.net.nfe, "value": (z**2).sum().item()}

    def train(self, tolerance: float) -> dict:
        self.net.zero_grad()
        z, log_det = self._run(tolerance)
        loss, forward = 0.5 * (z**2).sum() - log_det.sum(), self.net.nfe
        loss.backward()
        return {"nfe": forward, "value": loss.item()}


class Direct(Peer):
    """The same, differentiated through the solver instead."""

    ode = staticmethod(odeint)
