"""A running value of log Z while the prior is trained."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import replace_gradient, softplus


class RunningLogPartition:
    """log Z along a training run, for display, and its gradient from the chains.

    After a parameter step and the chains' next sweeps, log Z_new - log Z_old = -log mean exp(E_new - E_old) over
    z ~ p_new, with the last block of both energies summed out. (The mirror image on the chains that made the step is
    one-sided: the step has pushed against those very samples.)

    The standard error counts every chain's own accumulated deviation, so it includes the correlation along the
    chains; chains that do not cross between modes make it, and the value, wrong. Never report a likelihood with it.

    Source: the identity is free-energy perturbation, Zwanzig 1954; for the gradient Rolfe 2017, eq. RBM-grad.

    Args:
        energy: The prior.
        value: log Z now. None: the energy must have all couplings at zero, where log Z = sum softplus(b).

    Raises:
        InvalidInputError: If value is None and couplings are not zero, or value is not finite.

    Examples:
        >>> from discrete_vae import RBM
        >>> round(RunningLogPartition(RBM(2, 2)).value, 4)  # 4 log 2
        2.7726
    """

    def __init__(self, energy: BoltzmannEnergy, value: float | None = None) -> None:
        self.energy = energy
        if value is None:
            coupled = [
                name for name, p in energy.named_parameters() if name != "bias" and bool((p != 0).any())
            ]
            if coupled:
                repair = "Give value, for example exact_log_partition(energy)."
                raise InvalidInputError("value", "must be given where couplings are not zero", "None", repair)
            value = float(softplus(energy.bias.detach().double()).sum())
        self.reset(value)

    def reset(self, value: float) -> None:
        """Start again from a known value of log Z at the energy's present parameters.

        Raises:
            InvalidInputError: If value is not finite.
        """
        value = float(value)
        if not math.isfinite(value):
            raise InvalidInputError("value", "must be a finite number", value, "Give log Z in nats.")
        self.value = value
        self._parameters = self._copy_parameters()
        self._deviations: Tensor | None = None

    @property
    def std_error(self) -> float:
        """Standard error in nats since the last reset; 0 before the first update."""
        if self._deviations is None:
            return 0.0
        return float(self._deviations.std() / math.sqrt(len(self._deviations)))

    @torch.no_grad()
    def update(self, z: Tensor) -> None:
        """Follow the energy's parameters to where they are now.

        Args:
            z: (chain, unit), the chains after sweeps under the present parameters; always the same chains, in the
                same order.

        Raises:
            InvalidInputError: If z has another shape than before.
        """
        check_tensor("z", z, ("chain", self.energy.num_units))
        if self._deviations is not None and len(self._deviations) != len(z):
            repair = "Pass the same chains at each update, or call reset."
            raise InvalidInputError("z", f"must hold {len(self._deviations)} chains", len(z), repair)
        new_parameters = self._copy_parameters()
        new = self.energy.marginal_energy(z).double()
        self._assign(self._parameters)
        old = self.energy.marginal_energy(z).double()
        self._assign(new_parameters)
        log_mean = torch.logsumexp(new - old, 0) - math.log(len(z))
        self.value -= float(log_mean)
        deviation = torch.exp(new - old - log_mean) - 1
        self._deviations = deviation if self._deviations is None else self._deviations + deviation
        self._parameters = new_parameters

    def tensor(self, z: Tensor) -> Tensor:
        """log Z as a scalar with the running value and the chains' gradient -E_p[dE/dtheta].

        Args:
            z: (chain, unit), samples of the prior as it is now.

        Returns:
            A scalar tensor, nats; pass it to `kl_to_boltzmann`.

        Raises:
            InvalidInputError: If z is not a floating-point tensor of that shape.
        """
        check_tensor("z", z, ("chain", self.energy.num_units))
        surrogate = -self.energy.marginal_energy(z).mean()
        return replace_gradient(torch.tensor(self.value, dtype=surrogate.dtype, device=z.device), surrogate)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs: plain numbers and tensors."""
        state: dict[str, Any] = {"value": self.value}
        state |= {f"parameters.{name}": value.clone() for name, value in self._parameters.items()}
        if self._deviations is not None:
            state["deviations"] = self._deviations.clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state that `state_dict` gave.

        Raises:
            InvalidInputError: If an entry is missing or of another shape.
        """
        for name, value in self._parameters.items():
            saved = state.get(f"parameters.{name}")
            if saved is None or saved.shape != value.shape or "value" not in state:
                received = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                rule = f"must hold value and parameters.{name} of shape {tuple(value.shape)}"
                raise InvalidInputError("state", rule, received, "Load the state of the same prior.")
        self.value = float(state["value"])
        self._parameters = {
            name: state[f"parameters.{name}"].to(p.device).clone() for name, p in self._parameters.items()
        }
        deviations = state.get("deviations")
        device = self.energy.bias.device
        self._deviations = None if deviations is None else deviations.to(device, copy=True)

    def _copy_parameters(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.energy.named_parameters()}

    def _assign(self, parameters: dict[str, Tensor]) -> None:
        for name, parameter in self.energy.named_parameters():
            parameter.data.copy_(parameters[name])
