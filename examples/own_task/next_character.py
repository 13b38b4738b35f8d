"""A language model of your own data: predict the next character of Python's manual, which ships with Python itself.

Each client holds some of the manual's topics, whole: what they hold differs in size and in subject, as data does that
stays where it was written.

    adaquantfl run next_character.py:task
    adaquantfl compare next_character.toml --methods adaquant,2bit,4bit,8bit
"""

from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import adaquantfl as aq

CONTEXT = 16  # characters that the model sees
HELD_OUT = 0.1  # of each topic's end, for the test set
TEST = 5_000  # examples
LETTERS = "\n" + "".join(map(chr, range(32, 127)))  # anything else is read as a space


def task(clients: int, seed: int) -> aq.OwnTask:
    """What `adaquantfl run` calls. The global generators are seeded with `seed` before it does."""
    names = sorted(topics)
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    kept = []
    for turn, number in enumerate(torch.randperm(len(names)).tolist()):
        text = encoded(topics[names[number]])
        cut = int(len(text) * (1 - HELD_OUT))
        parts[turn % clients].append(text[:cut])
        kept.append(text[cut:])
    inputs, targets = examples(kept)
    sample = torch.randperm(len(targets))[:TEST]
    return aq.OwnTask(
        model=build,
        loss=nn.functional.cross_entropy,  # nats a character
        train=[examples(part) for part in parts],
        test=(inputs[sample], targets[sample]),
    )


def build() -> nn.Module:
    """96 letters, 16 numbers each; the last 16 of them through one hidden layer: 92,000 parameters."""
    return nn.Sequential(
        nn.Embedding(len(LETTERS), 16),
        nn.Flatten(),
        nn.Linear(16 * CONTEXT, 256),
        nn.ReLU(),
        nn.Linear(256, len(LETTERS)),
    )


def encoded(text: str) -> Tensor:
    """Letters as numbers."""
    number = {letter: place for place, letter in enumerate(LETTERS)}
    return torch.tensor([number.get(letter, number[" "]) for letter in text], dtype=torch.uint8)


def examples(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """All stretches of CONTEXT letters, and the letter after each."""
    windows = torch.cat([text.unfold(0, CONTEXT + 1, 1) for text in texts if len(text) > CONTEXT])
    return windows[:, :CONTEXT], windows[:, CONTEXT]
