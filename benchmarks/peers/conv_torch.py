"""torchdiffeq: a convolutional FFJORD written as its users write it."""

import math

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from .conv_work import images, kernels
from .torchdiffeq_ffjord import Augmented
from .work import Work


class Net(nn.Module):
    """f(t, z) on a batch (n, channels, height, width); the time is the first channel of every layer's input."""

    def __init__(self, work: Work):
        super().__init__()
        self.kernels = nn.ParameterList(
            torch.from_numpy(arrays["kernel"].transpose(3, 2, 0, 1).copy()) for arrays in kernels(work)
        )
        self.biases = nn.ParameterList(torch.from_numpy(arrays["bias"]) for arrays in kernels(work))
        self.nfe = 0

    def forward(self, t, z):
        self.nfe += 1
        last = len(self.kernels) - 1
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            told = torch.cat([torch.ones_like(z[:, :1]) * t, z], 1)
            z = nn.functional.conv2d(told, kernel, bias, padding=1)
            z = nn.functional.softplus(z) if i < last else z
        return z


class Peer:
    solve = staticmethod(odeint_adjoint)

    def __init__(self, work: Work):
        torch.manual_seed(0)
        self.work, self.net = work, Net(work)
        self.x = torch.from_numpy(images(work).transpose(0, 3, 1, 2).copy())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.0)

    def train(self, tolerance: float) -> dict:
        self.net.nfe = 0
        self.optimizer.zero_grad()
        times = torch.tensor([1.0, 0.0])
        start = (self.x.clone(), torch.zeros(len(self.x)))
        field = Augmented(self.net, torch.randn_like(self.x))
        z, log_det = self.solve(field, start, times, rtol=tolerance, atol=tolerance, method="dopri5")
        size = self.x[0].numel()
        log_prob = -0.5 * (z[-1] ** 2).sum((1, 2, 3)) - 0.5 * size * math.log(2 * math.pi) + log_det[-1]
        loss, forward = -log_prob.mean(), self.net.nfe
        loss.backward()
        self.optimizer.step()
        return {"nfe": forward, "value": loss.item()}


class Direct(Peer):
    """The same, differentiated through the solver instead."""

    solve = staticmethod(odeint)
