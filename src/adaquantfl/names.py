"""One sentence for every name that is not in a registry, with the nearest name that is."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: object, valid: Iterable[str]) -> str:
    """The message for a `name` that no `kind` has.

    >>> unknown("model", "resnet-18", ["cnn", "resnet18"])
    "There is no model named 'resnet-18'. Did you mean 'resnet18'? The valid names are: cnn, resnet18."
    """
    names = list(valid)
    near = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no {kind} named {name!r}.{hint} The valid names are: {', '.join(names)}."
