"""What the core does without: which extra brings a module that is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import AdaQuantError

EXTRAS = {
    **dict.fromkeys(("torch", "matplotlib", "rich", "tomli_w", "PIL", "pooch", "safetensors"), "train"),
    **dict.fromkeys(("flwr", "httpx", "ray"), "flower"),
}


def require(*modules: str) -> None:
    """AdaQuantError with the pip command where one of these is not installed."""
    for name in modules:
        if find_spec(name) is None:
            raise AdaQuantError(sentence(name))


def sentence(module: str) -> str:
    """What to do about a missing module of `EXTRAS`.

    >>> sentence("ray")
    "this command needs ray, which is not installed: pip install 'adaquantfl[train,flower]'"
    """
    extras = ",".join(dict.fromkeys(["train", EXTRAS[module]]))  # the others alone cannot train
    return f"this command needs {module}, which is not installed: pip install 'adaquantfl[{extras}]'"
