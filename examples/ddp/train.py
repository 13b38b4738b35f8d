"""Data-parallel training whose gradients travel as a few bytes: DistributedDataParallel with our communication hook.

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
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    data = datasets.load("fashion-mnist-sample")
    x = torch.from_numpy(data.train_x[rank::processes]).float().flatten(1) / 255 - 0.3
    y = torch.from_numpy(data.train_y[rank::processes])

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    model = nn.parallel.DistributedDataParallel(net)
    hook = aqt.GradientHook()
    model.register_comm_hook(hook, aqt.quantize_hook)  # these two lines are all there is to it

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        batch = torch.randint(len(y), (64,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        if step in (0, steps - 1):
            print(f"rank {rank} step {step + 1} loss {loss.item():.3f}", flush=True)
    plain = 4 * steps * sum(p.numel() for p in net.parameters())
    weights = nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    print(f"rank {rank} sent {hook.bytes_sent:,} bytes instead of {plain:,}; model {digest}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
