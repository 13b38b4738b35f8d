# mypy: disable-error-code="no-any-return, no-untyped-call"
"""A LoRA adapter: a small transformer reads Python's manual, and adapters of rank 8 fit it to Python's source code.

The transformer is trained for some seconds on the manual when the task is loaded, and frozen. Clients hold source files
of Python's library, which ship with Python. Only the adapters are trained and sent: 16,384 parameters.
"""

import inspect
import math
from importlib import import_module
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import adaquantfl as aq

CONTEXT, WIDTH, LAYERS, RANK = 24, 64, 2, 8
LETTERS = "\n" + "".join(map(chr, range(32, 127)))
MODULES = (
    "argparse", "ast", "calendar", "cmd", "configparser", "csv", "dataclasses", "decimal", "difflib", "doctest",
    "email.message", "enum", "fractions", "ftplib", "gettext", "heapq", "imaplib", "inspect", "ipaddress",
    "json.decoder", "locale", "mailbox", "numbers", "optparse", "pathlib", "pickle", "platform", "plistlib",
    "pprint", "queue", "random", "shelve", "smtplib", "statistics", "string", "tarfile", "textwrap",
    "threading", "timeit", "zipfile",
)  # fmt: skip
STEPS, BATCH = 400, 64  # of training on the manual


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two thin matrices that is trained."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Parameter(torch.randn(RANK, inner.in_features) / math.sqrt(inner.in_features))
        self.up = nn.Parameter(torch.zeros(inner.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x @ self.down.T @ self.up.T


class Block(nn.Module):
    """Causal attention with one head, then two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.first(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Reader(nn.Module):
    """Predicts the letter after the context."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, text: Tensor) -> Tensor:
        x = self.letters(text.long()) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))


def task(clients: int, seed: int) -> aq.OwnTask:
    """What `adaquantfl run` calls."""
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    kept = []
    for turn, number in enumerate(torch.randperm(len(MODULES)).tolist()):
        text = encoded(inspect.getsource(import_module(MODULES[number])))
        cut = int(0.9 * len(text))
        parts[turn % clients].append(text[:cut])
        kept.append(text[cut:])
    inputs, targets = examples(kept)
    sample = torch.randperm(len(targets))[:5_000]
    return aq.OwnTask(
        model=adapted,
        loss=nn.functional.cross_entropy,
        train=[examples(part) for part in parts],
        test=(inputs[sample], targets[sample]),
        accuracy=lambda outputs, targets: outputs.argmax(-1) == targets,
    )


def adapted() -> nn.Module:
    """The transformer after the manual, frozen, with new adapters. One thread: the same everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    net = Reader()
    inputs, targets = examples([encoded(text) for text in topics.values()])
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(STEPS):
        batch = torch.randint(len(targets), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs[batch]), targets[batch].long()).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    net.requires_grad_(False)
    for block in net.blocks:
        for name in ("mix", "out", "wide", "narrow"):
            setattr(block, name, Adapted(getattr(block, name)))
    return net


def encoded(text: str) -> Tensor:
    """Letters as numbers; anything else is a space."""
    number = {letter: place for place, letter in enumerate(LETTERS)}
    return torch.tensor([number.get(letter, number[" "]) for letter in text], dtype=torch.uint8)


def examples(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Every fourth stretch of CONTEXT letters, and the letter after each."""
    windows = torch.cat([text.unfold(0, CONTEXT + 1, 4) for text in texts if len(text) > CONTEXT])
    return windows[:, :CONTEXT], windows[:, CONTEXT]
