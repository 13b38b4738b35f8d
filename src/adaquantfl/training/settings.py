"""What clients need to know of a run: the task and how it is trained. A run's whole configuration is `runs.config`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..quantizers.base import Quantizer
from .methods import build


@dataclass(frozen=True)
class Settings:
    """The part of a configuration that training and engines read. The defaults are the paper's."""

    # What is trained on what: a task of your own, or a data set and a model of ours.
    task: str = ""  # FILE.py:FUNCTION
    task_sha256: str = ""  # of the file, written down when a run starts
    dataset: str = "fashion-mnist"
    examples: int = 0  # how many of the data set's training examples are used; 0: all
    model: str = "cnn"
    partition: str = "iid"  # "iid", "sorted" (the paper's non-i.i.d.) or "dirichlet(alpha)"
    clients: int = 8
    clients_per_round: int = 0  # a seeded sample of this size takes part in each round; 0: all
    min_clients: int = 0  # a round counts with at least this many answers; 0: all clients
    # Local SGD (eq. 2).
    tau: int = 10
    eta: float = 0.1
    batch_size: int = 64
    # The local optimizer, if it is not plain SGD. Its state starts anew in each round.
    optimizer: str = "sgd"  # or "adamw"
    momentum: float = 0.0  # of "sgd"
    weight_decay: float = 0.0  # "adamw" applies it apart from the gradient
    loss_samples: int = 1024  # a client's samples where f(w_k) is evaluated; 0: all
    quantizer: Any = ""  # [quantizer]: a name, a table of its settings, or an object; "": what the rule names
    seed: int = 0
    device: str = "cpu"  # or "cuda", "cuda:1", "mps": where clients train and models are evaluated
    workers: int = 0  # processes; 0: one a core. The result does not depend on it
    round_timeout: float = 600.0  # seconds that a client may take

    @property
    def kind(self) -> Quantizer:
        """The quantizer; one of the user's own file becomes known in this process."""
        made: Quantizer = build("quantizer", self.quantizer)
        return made

    def make_known(self) -> None:
        """Run the user's own file of a quantizer, so that this process knows what is in it."""
        build("quantizer", self.quantizer)

    def for_clients(self) -> dict[str, Any]:
        """These keys with their values, for a client in another process.

        >>> Settings(**Settings(tau=3).for_clients()) == Settings(tau=3)
        True
        """
        return {field.name: getattr(self, field.name) for field in fields(Settings)}
