"""The network for the peers in PyTorch."""

import math
from unittest import mock

import torch
from torch import Tensor, nn

from .work import Work

NONLINEARITIES = {"tanh": torch.tanh, "softplus": nn.functional.softplus}


class ConcatSquash(nn.Module):
    """(W x + b) ∘ sigmoid(t g + c) + t h."""

    def __init__(self, arrays: dict):
        super().__init__()
        for name, array in arrays.items():
            setattr(self, name, nn.Parameter(torch.from_numpy(array)))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        gate = torch.sigmoid(t * self.gate + self.gate_bias)
        return nn.functional.linear(x, self.weight, self.bias) * gate + t * self.shift


class Net(nn.Module):
    """f(t, z) on a batch; counts its evaluations."""

    def __init__(self, work: Work):
        super().__init__()
        self.layers = nn.ModuleList(ConcatSquash(arrays) for arrays in work.weights())
        self.nonlinearity = NONLINEARITIES[work.nonlinearity]
        self.nfe = 0

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        self.nfe += 1
        for layer in self.layers[:-1]:
            z = self.nonlinearity(layer(t, z))
        return self.layers[-1](t, z)


def normal_log_prob(z: Tensor) -> Tensor:
    return -0.5 * (z**2).sum(-1) - 0.5 * z.shape[-1] * math.log(2 * math.pi)


class TorchPeer:
    """What the peers in PyTorch share: the training step around their log-density."""

    def __init__(self, work: Work, *, double: bool = False):
        torch.manual_seed(0)
        self.work, self.tolerance = work, work.tolerance
        self.net = Net(work)
        self.x = torch.from_numpy(work.points())
        if double:
            self.net, self.x = self.net.double(), self.x.double()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.0)  # the same weights in every repetition

    def log_prob(self, x: Tensor, *, exact: bool) -> Tensor:
        raise NotImplementedError

    def _push(self, z: Tensor) -> Tensor:
        """The points of the base taken to the data."""
        raise NotImplementedError

    def train(self, tolerance: float) -> dict:
        self.tolerance = tolerance
        for _ in range(self.work.train_steps):
            self.net.nfe = 0
            self.optimizer.zero_grad()
            loss = -self.log_prob(self.x, exact=False).mean()
            forward = self.net.nfe
            loss.backward()
            self.optimizer.step()
        return {"nfe": forward, "value": loss.item()}

    def score(self, tolerance: float) -> dict:
        self.tolerance = tolerance
        self.net.nfe = 0
        with torch.no_grad():
            value = self.log_prob(self.x, exact=True)
        return {"nfe": self.net.nfe, "value": value.double().tolist()}

    def sample(self, tolerance: float) -> dict:
        self.tolerance = tolerance
        self.net.nfe = 0
        with torch.no_grad():
            x = self._push(torch.randn(self.x.shape, dtype=self.x.dtype))
        return {"nfe": self.net.nfe, "value": float(x.mean())}

    def estimate(self, tolerance: float) -> dict:
        """Log-densities as a training step has them, with the given noise."""
        self.tolerance = tolerance
        noise = torch.from_numpy(self.work.noise()).to(self.x.dtype)
        with mock.patch("torch.randn_like", return_value=noise):
            value = self.log_prob(self.x, exact=False).detach()
        return {"value": value.double().tolist()}

    def push(self, tolerance: float) -> dict:
        """Samples from the given points of the base."""
        self.tolerance = tolerance
        with torch.no_grad():
            x = self._push(torch.from_numpy(self.work.base_points()).to(self.x.dtype))
        return {"value": x.double().tolist()}
