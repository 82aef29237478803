"""The same model and step in plain PyTorch, written in the obvious way: modules, autograd, Adam, chains by products.

It has the weights of ours, one for one; bfloat16 is torch's autocast. It knows the experiments' common parts: a
bipartite prior, groups, spike-and-exponential smoothing, Gaussian layers without sharing, a Bernoulli decoder.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from discrete_vae.config import ExperimentConfig, GaussianHierarchyConfig, NoSharingConfig, RBMConfig
from discrete_vae.posterior import contiguous_groups

NAME = "plain PyTorch"
PACKAGE = "torch"


class L1BatchNorm(nn.Module):
    """Batch normalization by the mean absolute deviation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale, self.offset = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()  # under autocast
        mean = x.mean(0)
        centred = x - mean
        deviation = centred.abs().mean(0)
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
            self.deviation.lerp_(deviation, 0.1)
        return centred / (deviation + 1e-3) * self.scale + self.offset


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int, *, bias: bool = True) -> nn.Sequential:
    layers, size = [], inputs
    for width in hidden:
        layers += [nn.Linear(size, width, bias=False), L1BatchNorm(width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, outputs, bias=bias))


class PlainVAE(nn.Module):
    """The discrete VAE."""

    def __init__(self, config: ExperimentConfig) -> None:
        super().__init__()
        model = config.model
        prior, layers = model.prior, model.hierarchy
        if not isinstance(prior, RBMConfig) or not isinstance(model.posterior.groups, int):
            raise SystemExit("The plain contender knows bipartite priors and numbers of groups.")
        if isinstance(layers, GaussianHierarchyConfig) and not isinstance(layers.sharing, NoSharingConfig):
            raise SystemExit("The plain contender knows no parameter sharing.")
        x, units = model.num_values, prior.num_left + prior.num_right
        self.num_left = prior.num_left
        self.weight = nn.Parameter(torch.zeros(prior.num_left, prior.num_right))
        self.bias = nn.Parameter(torch.zeros(units))
        self.beta = nn.Parameter(torch.tensor(3.0))
        sizes = [len(group) for group in contiguous_groups(units, model.posterior.groups)]
        self.posterior, self.norms, read = nn.ModuleList(), nn.ModuleList(), x
        for size in sizes:
            self.posterior.append(mlp(read, model.posterior.hidden, size, bias=False))
            self.norms.append(L1BatchNorm(size))
            read += size
        self.group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        self.layers, self.priors, latents = nn.ModuleList(), nn.ModuleList(), units
        if isinstance(layers, GaussianHierarchyConfig):
            for _ in range(layers.num_layers):
                self.layers.append(mlp(x + latents, layers.posterior_hidden, 2 * layers.num_units))
                self.priors.append(mlp(latents, layers.prior_hidden, 2 * layers.num_units))
                latents += layers.num_units
        self.decoder = mlp(latents, model.decoder.hidden, x)
        chains = config.training.sampler.num_chains
        self.register_buffer("chains", torch.bernoulli(torch.full((chains, units), 0.5)))

    @torch.no_grad()
    def run_chains(self, num_sweeps: int) -> Tensor:
        """Block Gibbs: a product, a logistic, a uniform number and a comparison for each side."""
        left, right = self.chains[:, : self.num_left], self.chains[:, self.num_left :]
        for _ in range(num_sweeps):
            logits = torch.addmm(self.bias[: self.num_left], right, self.weight.T)
            left = (torch.rand_like(logits) < logits.sigmoid()).float()
            logits = torch.addmm(self.bias[self.num_left :], left, self.weight)
            right = (torch.rand_like(logits) < logits.sigmoid()).float()
        self.chains = torch.cat([left, right], 1)
        return self.chains

    def loss(
        self, x: Tensor, states: Tensor, discrete: float, continuous: float, *, autocast: bool
    ) -> Tensor:
        """Minus the bound with weights on its KL terms, less the value of log Z."""
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits, zetas = [], []
            for network, norm in zip(self.posterior, self.norms, strict=True):
                logit = norm(network(torch.cat([x, *zetas], 1)))
                v = (1 - torch.rand_like(logit)) * (1 + torch.exp(-logit))
                inside = 1 + torch.log1p(-torch.where(v < 1, v, 0.5) * -torch.expm1(-self.beta)) / self.beta
                logits.append(logit)
                zetas.append(torch.where(v < 1, inside, 0.0))
            kl_continuous, joint = torch.zeros(len(x)), torch.cat(zetas, 1)
            for network, prior in zip(self.layers, self.priors, strict=True):
                mean, log_std = network(torch.cat([x, joint], 1)).float().chunk(2, 1)
                log_std = 5 * torch.tanh(log_std / 5)
                prior_mean, prior_log_std = prior(joint).float().chunk(2, 1)
                prior_log_std = 5 * torch.tanh(prior_log_std / 5)
                joint = torch.cat([joint, mean + log_std.exp() * torch.randn_like(mean)], 1)
                ratio, distance = log_std - prior_log_std, (mean - prior_mean) * torch.exp(-prior_log_std)
                divergence = torch.exp(2 * ratio) - 1 - 2 * ratio + distance**2
                kl_continuous = kl_continuous + 0.5 * divergence.sum(1)
            parameters = self.decoder(joint).float()
        reconstruction = -F.binary_cross_entropy_with_logits(parameters, x, reduction="none").sum(1)
        kl = self.kl(torch.cat(logits, 1), torch.cat(zetas, 1)) + self.negative_phase(states)
        return (discrete * kl + continuous * kl_continuous - reconstruction).mean()

    def kl(self, logits: Tensor, zeta: Tensor) -> Tensor:
        q, z = torch.sigmoid(logits), (zeta != 0).float()
        softplus = F.softplus(logits)
        bits = z + (1 - z) * (softplus - softplus.detach())
        left, right = slice(self.num_left), slice(self.num_left, None)
        energy = -(q @ self.bias)
        earlier, later = self.group[left, None], self.group[right]
        for mask, a, b in ((earlier < later, bits, q), (earlier > later, q, bits), (earlier == later, q, q)):
            if mask.any():
                energy = energy - ((a[:, left] @ (self.weight * mask)) * b[:, right]).sum(1)
        return energy - (softplus - q * logits).sum(1)

    def negative_phase(self, states: Tensor) -> Tensor:
        """A scalar with the gradient of log Z."""
        left = states[:, : self.num_left]
        fields = left @ self.weight + self.bias[self.num_left :]
        free = -(left @ self.bias[: self.num_left]) - F.softplus(fields).sum(1)
        return -(free - free.detach()).mean()

    @torch.no_grad()
    def project_(self) -> None:
        self.beta.clamp_(0.01, 8.0)
        for norm in self.norms:
            norm.scale.clamp_(2, 3)
            norm.offset.copy_(torch.clamp(norm.offset, -norm.scale, norm.scale))


class PlainTraining:
    """Steps of it in "float32", or "bfloat16" by autocast."""

    def __init__(self, config: ExperimentConfig, precision: str) -> None:
        self.model = PlainVAE(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self._sweeps, self._autocast = config.training.num_sweeps, precision == "bfloat16"

    def step(self, x: Tensor) -> float:
        states = self.model.run_chains(self._sweeps)
        loss = self.model.loss(x.flatten(1), states, 1.0, 1.0, autocast=self._autocast)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.model.project_()
        return loss.item()

    def run_chains(self) -> None:
        self.model.run_chains(self._sweeps)
