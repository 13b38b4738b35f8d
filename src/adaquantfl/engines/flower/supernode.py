"""Flower's SuperNode with shorter naps: python -m adaquantfl.engines.flower.supernode POLL ARGUMENTS."""

from __future__ import annotations

import sys

from flwr.supernode.cli.flower_supernode import flower_supernode

from .haste import hurry_supernode

if __name__ == "__main__":
    hurry_supernode(float(sys.argv.pop(1)))
    sys.argv[0] = "flower-supernode"
    flower_supernode()
