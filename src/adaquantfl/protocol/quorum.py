"""Who answered: a round goes on without some of the clients, or stops with a sentence that names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from traceback import extract_tb

from ..errors import AdaQuantError, EngineError
from ..runs.config import Config

_NAMED = 5  # reasons in a sentence; a thousand clients may be missing


def enough(missing: Collection[int], asked: int, config: Config) -> bool:
    """Whether `min_clients` of those asked answered."""
    return asked - len(missing) >= _needed(asked, config)


def check_quorum(missing: Mapping[int, str], asked: int, config: Config, when: str) -> None:
    """Stop where fewer than `min_clients` of those asked answered. missing: client -> why."""
    if enough(missing, asked, config):
        return
    heard, needed = asked - len(missing), _needed(asked, config)
    rule = f"min_clients = {needed}" if config.min_clients else "all of them are needed (min_clients = 0)"
    raise EngineError(f"{when}: {heard} of {asked} clients answered, but {rule}. Missing: {who_is_missing(missing)}")


def _needed(asked: int, config: Config) -> int:
    return min(config.min_clients or asked, asked)


def who_is_missing(missing: Mapping[int, str]) -> str:
    """Clients with their reasons, those with the same one together.

    >>> who_is_missing({1: "killed by signal 9.", 4: "no answer.", 2: "killed by signal 9."})
    'clients 1, 2: killed by signal 9. Client 4: no answer.'
    """
    by_reason: dict[str, list[int]] = {}
    for client in sorted(missing):
        by_reason.setdefault(missing[client], []).append(client)
    parts = []
    for reason, clients in list(by_reason.items())[:_NAMED]:
        names = ", ".join(map(str, clients[:20])) + (", ..." if len(clients) > 20 else "")
        parts.append(f"client{'s' if len(clients) > 1 else ''} {names}: {reason}")
    text = " ".join(part if i == 0 else part.capitalize()[0] + part[1:] for i, part in enumerate(parts))
    others = len(by_reason) - _NAMED
    return text + (f" And {others} more reasons in the history." if others > 0 else "")


def reason_of(error: Exception) -> str:
    """Why a client failed, in a sentence: our own errors speak for themselves, others get their place in the code."""
    if isinstance(error, AdaQuantError):
        return str(error)
    places = extract_tb(error.__traceback__)
    where = f" ({Path(places[-1].filename).name}, line {places[-1].lineno})" if places else ""
    return f"it raised {type(error).__name__}: {error}{where}."
