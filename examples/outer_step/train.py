"""Training over a slow link, as in DiLoCo: AdamW alone in each process, and an outer step together now and then.

torchrun --standalone --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import hashlib

import torch
import torch.distributed as dist
from torch import nn

import adaquantfl.torch as aqt
from adaquantfl.training import datasets


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--noise", type=float, default=1.0, help="of the mean, in energies of one update")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    data = datasets.load("fashion-mnist-sample")
    x = torch.from_numpy(data.train_x[rank::processes]).float().flatten(1) / 255 - 0.3
    y = torch.from_numpy(data.train_y[rank::processes])

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    inner = torch.optim.AdamW(net.parameters(), lr=1e-3)
    outer = aqt.OuterStep(net.parameters(), step="nesterov", noise=options.noise)
    generator, sent = torch.Generator().manual_seed(rank), 0
    for number in range(options.rounds):
        for _ in range(options.steps):
            batch = torch.randint(len(y), (64,), generator=generator)
            inner.zero_grad()
            loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
            loss.backward()
            inner.step()
        sent += outer.step()
        with torch.no_grad():
            whole = nn.functional.cross_entropy(net(x), y).item()
        print(f"rank {rank} round {number + 1} loss {whole:.3f}", flush=True)
    plain = 4 * options.rounds * sum(p.numel() for p in net.parameters())
    weights = nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    print(f"rank {rank} sent {sent:,} bytes instead of {plain:,}; model {digest}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
