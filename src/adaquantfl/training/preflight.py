"""What can be said against a task of ours before PyTorch is loaded and before its data are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError
from . import catalogue, datasets, partitions

if TYPE_CHECKING:
    from .settings import Settings


def check_task(config: Settings) -> None:
    """ConfigError or DataError where the data set, the model or the partition does not exist or does not fit."""
    if config.task:
        return  # a task of the user's own says so itself, when it is built
    catalogue.check_fits(config.model, config.dataset)
    if config.batch_size == 1 and config.model == "resnet18":
        raise ConfigError("batch_size = 1: resnet18 has BatchNorm, which needs at least 2 samples per batch.")
    spec = catalogue.find(config.dataset)
    partitions.check_kind(config.partition)
    if config.examples > spec.train:
        raise ConfigError(f"examples = {config.examples}, but {spec.name} has {spec.train:,} to train on.")
    partitions.check_shares(config.examples or spec.train, config.clients)
    datasets.check_present(spec)
