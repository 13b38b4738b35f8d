"""Model, data and training: plain transformers and peft, nothing of Flower."""

from __future__ import annotations

from functools import cache
from pydoc_data.topics import topics

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT, BATCH = 64, 8
LETTERS = "\n" + "".join(map(chr, range(32, 127)))  # anything else is read as a space


def build() -> PeftModel:
    """A transformer built from its config, frozen, with adapters of rank 8; the same weights in every process."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(LETTERS), "n_positions": CONTEXT, "n_embd": 128, "n_layer": 2, "n_head": 4}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    net = GPT2LMHeadModel(GPT2Config(**sizes, **none, bos_token_id=0, eos_token_id=0))
    layers = ["c_attn", "c_proj", "c_fc"]
    return get_peft_model(net, LoraConfig(r=8, lora_alpha=16, target_modules=layers, fan_in_fan_out=True))


@cache
def texts(clients: int) -> tuple[list[Tensor], Tensor]:
    """Python's manual, which ships with Python: the topics of each client, and the end of every topic for the test."""
    number = {letter: place for place, letter in enumerate(LETTERS)}
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    kept = []
    for place, name in enumerate(sorted(topics)):
        text = torch.tensor([number.get(letter, number[" "]) for letter in topics[name]])
        cut = int(0.9 * len(text))
        parts[place % clients].append(text[:cut])
        kept.append(text[cut:])
    return [torch.cat(part) for part in parts], torch.cat(kept)


def train(net: PeftModel, client: int, clients: int, steps: int, lr: float, seed: int) -> tuple[float, int]:
    """AdamW on the adapters: the mean loss, and the number of letters that the client has."""
    text, generator = texts(clients)[0][client], torch.Generator().manual_seed(seed)
    optimizer, total = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=lr), 0.0
    for _ in range(steps):
        starts = torch.randint(len(text) - CONTEXT, (BATCH, 1), generator=generator)
        batch = text[starts + torch.arange(CONTEXT)]
        optimizer.zero_grad()
        loss = net(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps, len(text)


@torch.no_grad()
def test_loss(net: PeftModel) -> float:
    """On a tenth of the test text."""
    text = texts(1)[1]
    batch = text[: len(text) // CONTEXT * CONTEXT].view(-1, CONTEXT)[::10]
    return float(net(input_ids=batch, labels=batch).loss)
