"""torchdiffeq: FFJORD written as its users write it, with the adjoint method."""

import torch
from torchdiffeq import odeint, odeint_adjoint

from .torch_net import TorchPeer, normal_log_prob


class Augmented(torch.nn.Module):
    """d/dt of (z, log_det), with the trace by reverse mode."""

    def __init__(self, net, noise=None):
        super().__init__()
        self.net, self.noise = net, noise

    def forward(self, t, state):
        z = state[0]
        graph = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z.requires_grad_(True) if z.is_leaf else z
            f = self.net(t, z)
            if self.noise is None:
                columns = (
                    torch.autograd.grad(f[:, i].sum(), z, create_graph=graph, retain_graph=True)
                    for i in range(z.shape[1])
                )
                trace = sum(column[0][:, i] for i, column in enumerate(columns))
            else:
                (product,) = torch.autograd.grad(f, z, self.noise, create_graph=graph)
                trace = (product * self.noise).flatten(1).sum(1)
        return (f, trace) if graph else (f.detach(), trace.detach())


class Peer(TorchPeer):
    solve = staticmethod(odeint_adjoint)

    def log_prob(self, x, *, exact):
        noise = None if exact else torch.randn_like(x)
        times = torch.tensor([self.work.end_time, 0.0], dtype=x.dtype)
        z, log_det = self.solve(
            Augmented(self.net, noise),
            (x.clone(), torch.zeros_like(x[:, 0])),
            times,
            rtol=self.tolerance,
            atol=self.tolerance,
            method="dopri5",
        )
        return normal_log_prob(z[-1]) + log_det[-1]

    def _push(self, z):
        times = torch.tensor([0.0, self.work.end_time], dtype=z.dtype)
        return odeint(self.net, z, times, rtol=self.tolerance, atol=self.tolerance, method="dopri5")[-1]


class Direct(Peer):
    """The same, differentiated through the solver instead."""

    solve = staticmethod(odeint)
