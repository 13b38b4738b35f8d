"""Federated averaging with quantized updates in plain torch.distributed: each process is a client, process 0 adds up.

torchrun --standalone --nproc-per-node 3 train.py --rounds 20
"""

from __future__ import annotations

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import adaquantfl as aq
from adaquantfl.training import datasets, partitions

SEED, BATCH, LR = 0, 32, 0.1


def local_sgd(net: nn.Module, x: Tensor, y: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """A client's round of training; returns its mean loss."""
    optimizer, total = torch.optim.SGD(net.parameters(), lr=LR), torch.zeros(1)
    for _ in range(steps):
        batch = torch.randint(len(y), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        total += loss.detach() / steps
    return total


def add_up(frame: bytes, dimension: int) -> tuple[Tensor, int]:
    """The mean of all processes' updates, in every process, and the bytes that went to process 0.

    Frames differ in length: everybody tells theirs first, so that process 0 receives exactly so many bytes.
    """
    rank, clients = dist.get_rank(), dist.get_world_size()
    lengths = torch.zeros(clients, dtype=torch.int64)
    lengths[rank] = len(frame)
    dist.all_reduce(lengths)
    mean = torch.empty(dimension)
    if rank == 0:
        inbox = {client: torch.empty(int(lengths[client]), dtype=torch.uint8) for client in range(1, clients)}
        arriving = [dist.irecv(buffer, client) for client, buffer in inbox.items()]
        total = aq.Accumulator(dimension)
        total.add(frame, 1 / clients)
        for request, buffer in zip(arriving, inbox.values(), strict=True):  # in client order
            request.wait()
            total.add(buffer.numpy(), 1 / clients)
        mean = torch.from_numpy(total.result())
    else:
        dist.send(torch.frombuffer(bytearray(frame), dtype=torch.uint8), 0)
    dist.broadcast(mean, 0)
    return mean, int(lengths[1:].sum())


def main(rounds: int, steps: int) -> None:
    rank, clients = dist.get_rank(), dist.get_world_size()
    data = datasets.load("fashion-mnist-sample")
    mine = partitions.partition(data.train_y, clients, "iid", SEED)[rank]
    x = (torch.as_tensor(data.train_x[mine]).float() / 255 - data.mean[0]) / data.std[0]
    y = torch.as_tensor(data.train_y[mine])
    generator = torch.Generator().manual_seed(SEED + rank)
    torch.manual_seed(SEED)  # the same start for everybody
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    weights = parameters_to_vector(net.parameters()).detach().clone()
    tensors = [p.numel() for p in net.parameters()]
    d, loss, bits = len(weights), None, 0
    rule = aq.AdaQuant(s0=2)
    state = rule.init()
    for number in range(rounds):
        # Everybody knows loss and bits, so that everybody finds the same s.
        state, plan = rule.plan(state, aq.Seen(bits=bits, dimension=d, loss=loss, eta=LR))
        mean_loss = local_sgd(net, x, y, steps, generator)
        update = (parameters_to_vector(net.parameters()).detach() - weights).numpy()
        key = aq.stream_key(SEED, number, rank)
        mean, received = add_up(aq.compress(update, plan.levels, key, segments=tensors), d)
        weights += mean
        vector_to_parameters(weights.clone(), net.parameters())
        dist.all_reduce(mean_loss)
        loss, bits = mean_loss.item() / clients, bits + aq.paper_bits(d, plan.levels, len(tensors))
        if rank == 0:
            plain = 4 * d * (clients - 1)
            print(f"round {number + 1:3}  s {plan.levels:2}  loss {loss:.4f}  {received:,} bytes up, not {plain:,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    try:
        main(arguments.rounds, arguments.steps)
    finally:
        dist.destroy_process_group()
