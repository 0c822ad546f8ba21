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


class Noise:
    """A standard normal as torchdyn asks for it; drawn like that of the others, which can be given."""

    def __init__(self, x):
        self.x = x

    def sample(self, shape):
        return torch.randn_like(self.x)


class Peer(TorchPeer):
    def __init__(self, work, **options):
        super().__init__(work, **options)
        field = WithTime(self.net)
        cnfs = {True: CNF(field, autograd_trace), False: CNF(field, hutch_trace, noise_dist=Noise(self.x))}
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

    def _push(self, z):
        times = torch.tensor([0.0, self.work.end_time], dtype=z.dtype)
        return self.plain(z, times)[-1]
