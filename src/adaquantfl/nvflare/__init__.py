"""AdaQuantFL in an NVFlare job: `quantize(recipe)`, or the two filters in a job's own files."""

from __future__ import annotations

from typing import Any

from .client import ClientFilter
from .server import ServerFilter

__all__ = ["ClientFilter", "ServerFilter", "quantize"]


def quantize(recipe: Any, server: ServerFilter | None = None, tasks: tuple[str, ...] = ("train",)) -> None:
    """Let a recipe's models and updates travel quantized.

    Args:
        recipe: such as `FedAvgRecipe`.
        server: the server's filter, where it has other settings than the usual ones.
        tasks: in which the clients train.
    """
    server = server or ServerFilter()
    recipe.add_server_output_filter(server, tasks=[*tasks])
    recipe.add_client_input_filter(ClientFilter(), tasks=[*tasks])
    recipe.add_client_output_filter(ClientFilter(), tasks=[*tasks])
    recipe.add_server_input_filter(server, tasks=[*tasks])
