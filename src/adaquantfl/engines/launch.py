"""Which engine plays a run: the same request, whatever carries the messages."""

from __future__ import annotations

from typing import Any

from ..runs.loop import Observer, Request
from . import own_file


def launch(engine: str, request: Request, observer: Observer | None = None) -> dict[str, Any] | None:
    """Play a run on an engine of `config.ENGINES`; None where this process is only a client of it."""
    own_file.allow(request.task)
    if engine == "gloo":
        from .gloo import launch as gloo_run

        return gloo_run.launch(request, observer)
    if engine == "flower":
        from .flower import launch as flower_run

        return flower_run.simulate(request, observer)
    if engine == "flower-deployment":
        from .flower import launch as flower_run

        return flower_run.deploy(request, observer)
    assert engine == "local", engine
    return request.play(observer)
