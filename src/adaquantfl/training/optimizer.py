"""The clients' optimizer: what one local step does with the gradient. Plain SGD is the paper's (eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .settings import Settings


class LocalOptimizer:
    """One optimizer for all clients that a process plays. Its state is new in each client's round.

    So a round depends on the model, the client's data and the seed only. It is the same on every engine and after an
    interruption, and one client's momentum never reaches another.
    """

    def __init__(self, config: Settings, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._prox, self._clip = config.prox, config.clip_gradient
        self._start: list[Tensor] = []  # w_k, with FedProx
        self._optimizer = _optimizer(config, self._parameters)

    def begin(self, eta: float) -> None:
        """Forget the client before; the parameters are now the round's model."""
        self._optimizer.state.clear()
        self._optimizer.param_groups[0]["lr"] = eta
        self._start = [p.detach().clone() for p in self._parameters] if self._prox else []

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    @torch.no_grad()
    def step(self) -> None:
        """One step: the proximal term's gradient is added first, then all of it is clipped."""
        for p, start in zip(self._parameters, self._start, strict=False):  # none without FedProx
            if p.grad is not None:
                p.grad.add_(p - start, alpha=self._prox)  # of prox / 2 |w - w_k|^2, Li et al. 2020
        if self._clip:
            nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._optimizer.step()


def _optimizer(config: Settings, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=config.eta, weight_decay=config.weight_decay, foreach=True)
    return torch.optim.SGD(
        parameters,
        lr=config.eta,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        foreach=True,
    )
