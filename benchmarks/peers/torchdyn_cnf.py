"""torchdyn: its CNF and its NeuralODE."""

import torch
from torchdyn.core import NeuralODE
from torchdyn.models import CNF, autograd_trace, hutch_trace

from .torch_net import TorchPeer, normal_log_prob


class WithTime(torch.nn.Module):
    """The network as torchdyn calls it: the solver sets `t`."""

    def __init__(self, net):
        super().__init__()
        self.net, self.t = net, torch.zeros(())

    def forward(self, z):
        return self.net(self.t, z)


class Peer(TorchPeer):
    def __init__(self, work, **options):
        super().__init__(work, **options)
        zeros = torch.zeros(work.dim, dtype=self.x.dtype)
        noise = torch.distributions.MultivariateNormal(zeros, torch.eye(work.dim, dtype=self.x.dtype))
        field = WithTime(self.net)
        cnfs = {True: CNF(field, autograd_trace), False: CNF(field, hutch_trace, noise_dist=noise)}
        tolerances = {"atol": self.tolerance, "rtol": self.tolerance}
        backwards = {"atol_adjoint": self.tolerance, "rtol_adjoint": self.tolerance}
        make = lambda f: NeuralODE(
            f, solver="dopri5", sensitivity="adjoint", return_t_eval=False, **tolerances, **backwards
        )
        self.odes = {exact: make(cnf) for exact, cnf in cnfs.items()}
        self.plain = make(field)

    def log_prob(self, x, *, exact):
        times = torch.tensor([self.work.end_time, 0.0], dtype=x.dtype)
        out = self.odes[exact](torch.cat([torch.zeros_like(x[:, :1]), x], 1), times)[-1]
        return normal_log_prob(out[:, 1:]) - out[:, 0]

    def draw(self, n):
        times = torch.tensor([0.0, self.work.end_time], dtype=self.x.dtype)
        return self.plain(torch.randn(n, self.work.dim, dtype=self.x.dtype), times)[-1]
