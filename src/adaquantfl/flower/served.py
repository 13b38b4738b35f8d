"""The wrapped strategy's model as the server of the protocol has it: in its own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from ..errors import AdaQuantError, ConfigError
from ..private.settings import Private
from ..protocol.arrays import EXACT_NAMES, AnyArray
from ..protocol.bfloat16 import widened
from ..protocol.round import smoothed
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..protocol.state import ServerState
from .fleet import Once, log
from .records import array_record, arrays_in

_NO_STATISTICS = "By their places, none looks like BatchNorm's statistics."
_NAME_THEM = "If that is wrong, name the arrays that are not to be quantized: AdaQuantStrategy(..., exact=[...])."


class ServedModel:
    """server: None before the first round. exact: names that are not quantized."""

    def __init__(self, stages: Stages, exact: Sequence[str], once: Once, private: Private) -> None:
        self.server: Server | None = None
        self._stages, self._exact, self._once, self._private = stages, tuple(exact), once, private

    def restore(self, tree: Mapping[str, Any] | None) -> None:
        """Take the server from a state that was written down."""
        if tree is None:
            self.server = None
        elif self._private.masks:
            from ..private.server import Server as PrivateServer  # it needs the extra

            self.server = PrivateServer.resume(tree, self._private, self._stages)
        else:
            self.server = Server.restore(tree, self._stages)

    @property
    def arrays(self) -> ArrayRecord:
        """The present model as Flower carries it."""
        if self.server is None:
            raise ConfigError("The strategy has no model before its first round.")
        return array_record(self.server.weights)

    def fresh(self, weights: Mapping[str, AnyArray]) -> ArrayRecord:
        """Begin with random weights, rounded (`Server(fresh=True)`): the arrays that training starts from."""
        self._begin(weights, fresh=True)
        return self.arrays

    def at(self, weights: Mapping[str, AnyArray]) -> Server:
        """The server with this model: the one that it made last, or another where somebody has changed it since."""
        if self.server is not None:
            with suppress(ConfigError):  # another model, with other arrays
                self.server.adopt(weights)
                return self.server
        return self._begin(weights)

    def close(
        self, server: Server, before: ServerState, heard: int, arrays: ArrayRecord | None, loss: float | None
    ) -> tuple[ArrayRecord | None, dict[str, Any]]:
        """End the round with what the wrapped strategy made of it.

        Args:
            server: with the open round.
            before: its state before that round.
            heard: how many updates the strategy had.
            arrays: the model that it made of them.
            loss: f(w_k), where the clients report it.

        Returns:
            The model to continue with, and what the round took.
        """
        layout = before.layout
        made = None if arrays is None else layout.typed(arrays_in(arrays))
        if (arrays is None) == bool(heard):  # only plain weights; or nothing was made of the updates
            server.return_to(before)
            return (array_record(made) if made is not None and layout.has_bfloat16 else arrays), {}
        return self.end(server, before, made, loss)

    def end(
        self, server: Server, before: ServerState, made: Mapping[str, AnyArray] | None, loss: float | None
    ) -> tuple[ArrayRecord | None, dict[str, Any]]:
        """Close the round. made: the wrapped strategy's model; None lets the server add the updates up itself."""
        try:
            facts = server.close(made).facts
        except AdaQuantError as error:  # too few updates, or a model that is not finite
            log.warning("The model stays as it is. %s", error)
            server.return_to(before)
            return None, {}
        after = server.current
        bits = after.ledger.paper_bits - before.ledger.paper_bits
        if made is not None and "undone" not in facts:
            known = before.loss if loss is None else smoothed(before.loss, loss, self._stages.loss_smoothing)
            server.return_to(replace(after, loss=known))
        return self.arrays, {
            **({} if facts["s"] is None else {"aq_s": facts["s"]}),
            **(
                {"aq_bits_per_element": facts["bits_per_element"], "aq_paper_bits": bits}
                if "paper_bits" in facts
                else {}
            ),
            **{f"aq_{name}": facts[name] for name in ("masked_bits", "epsilon") if name in facts},
            "aq_payload_bytes": after.ledger.payload_bytes_up - before.ledger.payload_bytes_up,
        }

    def _begin(self, weights: Mapping[str, AnyArray], fresh: bool = False) -> Server:
        exact = (*self._exact, *self._statistics(weights))
        if self._private.masks:
            from ..private.server import Server as PrivateServer  # it needs the extra

            self.server = PrivateServer(weights, self._private, exact=exact, stages=self._stages, fresh=fresh)
        else:
            self.server = Server(weights, exact=exact, stages=self._stages, fresh=fresh)
        return self.server

    def _statistics(self, weights: Mapping[str, AnyArray]) -> list[str]:
        """BatchNorm's statistics where the arrays have no names, unless the user has named them."""
        if not all(name.isdecimal() for name in weights) or self._exact != EXACT_NAMES:
            return []
        found = statistics_by_place(weights)
        names = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
        what = f"BatchNorm's statistics were found by their places: {names}." if found else _NO_STATISTICS
        self._once("places", "The arrays have numbers for names. %s %s", what, _NAME_THEM)
        return found


def statistics_by_place(arrays: Mapping[str, AnyArray]) -> list[str]:
    """The names of BatchNorm's means and variances among arrays that have only numbers for names.

    PyTorch: (weight, bias,) running_mean, running_var, and an integer, num_batches_tracked. Keras, and PyTorch without
    the integers: gamma, beta, mean and variance of one length, perhaps after a bias. A variance is above 0 everywhere;
    a bias, as at the end of two LayerNorms, is not.
    """
    items = [(name, widened(array)) for name, array in arrays.items()]
    counters = [place for place, (_, array) in enumerate(items) if array.shape == () and array.dtype.kind == "i"]
    if counters:
        pairs = [items[place - 2 : place] for place in counters if place >= 2]
        return [name for pair in pairs if _alike(*pair) for name, _ in pair]
    found, run = list[str](), list[tuple[str, AnyArray]]()
    for item in [*items, ("", np.empty((0, 0)))]:
        if run and not _alike(run[-1], item):
            if len(run) >= 4 and bool((run[-1][1] > 0).all()):
                found += [run[-2][0], run[-1][0]]
            run = []
        run.append(item)
    return found


def _alike(one: tuple[str, AnyArray], other: tuple[str, AnyArray]) -> bool:
    """Two vectors of floats of one length."""
    a, b = one[1], other[1]
    return a.ndim == b.ndim == 1 and a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"
