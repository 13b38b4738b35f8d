# mypy: disable-error-code="no-any-return, no-untyped-call"
"""Small GPTs that read Python's manual, letter by letter: one for each worker, computed together.

The parameters of all of them are rows of one matrix, so that an inner optimizer and an outer step see plain vectors.
The text ships with Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

LETTERS = "\n" + "".join(map(chr, range(32, 127)))  # anything else is read as a space
HELD_OUT = 0.1  # of each topic's end, for validation


@dataclass(frozen=True)
class GPT:
    """A model's shape. The letters' embedding is the output layer's matrix too; no biases."""

    layers: int
    heads: int
    head: int  # numbers of each
    context: int

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes, in the order of the vector."""
        width = self.heads * self.head
        found: dict[str, tuple[int, ...]] = {"letters": (len(LETTERS), width), "places": (self.context, width)}
        for layer in range(self.layers):
            one = {"norm": (2, width), "mix": (width, 3 * width), "out": (width, width)}
            two = {"wide": (width, 4 * width), "narrow": (4 * width, width)}
            found |= {f"{layer}.{name}": shape for name, shape in (one | two).items()}
        return found | {"norm": (width,)}

    @property
    def lengths(self) -> list[int]:
        """The number of elements of each tensor."""
        return [int(np.prod(shape)) for shape in self.tensors.values()]

    def start(self, seed: int) -> Tensor:
        """GPT-2's: normal with 0.02, and less where layers add up; norms are 1."""
        generator, parts = torch.Generator().manual_seed(seed), []
        for name, shape in self.tensors.items():
            deep = name.endswith(("out", "narrow"))
            scale = 0.02 / (2 * self.layers) ** 0.5 if deep else 0.02
            parts.append(torch.ones(shape) if "norm" in name else scale * torch.randn(shape, generator=generator))
        return torch.cat([part.flatten() for part in parts])

    def parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Each tensor of all models, (models, *shape): views of the matrix that has a model in each row."""
        edges = np.cumsum([0, *self.lengths]).tolist()
        return {
            name: rows[:, a:b].unflatten(1, shape)
            for (name, shape), (a, b) in zip(self.tensors.items(), pairwise(edges), strict=True)
        }

    def losses(self, w: Mapping[str, Tensor], text: Tensor) -> Tensor:
        """The mean loss of each model. w: its `parts`; text: (models, batch, context + 1) letters."""
        count, batch = text.shape[:2]
        letters = text[..., :-1] + len(LETTERS) * torch.arange(count)[:, None, None]
        x = functional.embedding(letters, w["letters"].flatten(0, 1)) + w["places"][:, None]
        x = x.flatten(1, 2)  # (models, batch * context, width)
        for layer in range(self.layers):
            one = {name: w[f"{layer}.{name}"] for name in ("norm", "mix", "out", "wide", "narrow")}
            mixed = torch.bmm(normal(x) * one["norm"][:, :1], one["mix"])
            q, k, v = mixed.view(count * batch, self.context, 3, self.heads, self.head).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + torch.bmm(seen, one["out"])
            x = x + torch.bmm(functional.gelu(torch.bmm(normal(x) * one["norm"][:, 1:], one["wide"])), one["narrow"])
        scores = torch.bmm(normal(x) * w["norm"][:, None], w["letters"].transpose(1, 2))
        each = functional.cross_entropy(scores.flatten(0, 1), text[..., 1:].flatten(), reduction="none")
        return each.view(count, -1).mean(1)


def normal(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


class Text:
    """The manual: its topics, whole, spread over the workers, and the end of each topic for validation."""

    def __init__(self, workers: int, seed: int) -> None:
        names, kept = sorted(topics), []
        parts: list[list[Tensor]] = [[] for _ in range(workers)]
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
        for turn, number in enumerate(order):
            text = encoded(topics[names[number]])
            cut = int(len(text) * (1 - HELD_OUT))
            parts[turn % workers].append(text[:cut])
            kept.append(text[cut:])
        self.parts, self.kept = [torch.cat(part) for part in parts], torch.cat(kept)

    def batch(self, generators: Sequence[torch.Generator], size: int, context: int) -> Tensor:
        """(workers, size, context + 1): for each worker stretches of its text."""
        return torch.stack(
            [
                stretches(part, torch.randint(len(part) - context, (size,), generator=generator), context)
                for part, generator in zip(self.parts, generators, strict=True)
            ]
        )

    def validation(self, context: int, most: int) -> Tensor:
        """At most this many stretches of the validation text, spread over it."""
        starts = torch.arange(0, len(self.kept) - context, context)
        return stretches(self.kept, starts[:: -(-len(starts) // most)], context)


def encoded(text: str) -> Tensor:
    """Letters as numbers."""
    number = {letter: place for place, letter in enumerate(LETTERS)}
    return torch.tensor([number.get(letter, number[" "]) for letter in text])


def stretches(text: Tensor, starts: Tensor, context: int) -> Tensor:
    return text[starts[:, None] + torch.arange(context + 1)]
