"""zuko: its continuous transformation, as its CNF uses it, around our network."""

import zuko

from .torch_net import TorchPeer, normal_log_prob


class Peer(TorchPeer):
    def transform(self, *, exact: bool):
        return zuko.transforms.FreeFormJacobianTransform(
            self.net,
            t0=self.work.end_time,
            t1=0.0,
            phi=self.net.parameters(),
            atol=self.tolerance,
            rtol=self.tolerance,
            exact=exact,
        )

    def log_prob(self, x, *, exact):
        z, log_det = self.transform(exact=exact).call_and_ladj(x)
        return normal_log_prob(z) + log_det

    def _push(self, z):
        return self.transform(exact=True).inv(z)
