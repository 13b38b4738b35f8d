"""What the core does without: which extra brings a module that is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import AdaQuantError

EXTRAS = {
    **dict.fromkeys(("torch", "matplotlib", "rich", "tomli_w", "PIL", "pooch", "safetensors"), "train"),
    **dict.fromkeys(("flwr", "httpx", "ray"), "flower"),
}
_OF_ENGINE = {"flower": ("flwr",)}


def require(*modules: str, engine: str = "") -> None:
    """AdaQuantError with the pip command where one of these is not installed. engine: that a run uses."""
    missing = [name for name in (*modules, *_OF_ENGINE.get(engine, ())) if find_spec(name) is None]
    if missing:
        raise AdaQuantError(sentence(*missing))


def sentence(*modules: str) -> str:
    """What to do about missing modules of `EXTRAS`.

    >>> sentence("torch")
    "this command needs torch, which is not installed. The extra train brings it: pip install 'adaquantfl[train]'"
    """
    extras = ["train", *sorted({EXTRAS[name] for name in modules} - {"train"})]  # the others alone cannot train
    brought = f"The extra {extras[0]} brings" if len(extras) == 1 else f"The extras {' and '.join(extras)} bring"
    which, them = ("which is", "it") if len(modules) == 1 else ("which are", "them")
    return (
        f"this command needs {' and '.join(modules)}, {which} not installed. {brought} {them}: "
        f"pip install 'adaquantfl[{','.join(extras)}]'"
    )
