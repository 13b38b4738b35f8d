"""FedAvg with and without our two lines: python job.py FOLDER [--quantize] [--torch] [--spoil SITE] [--diverge]."""

from __future__ import annotations

import argparse
from pathlib import Path

from net import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.recipe import SimEnv

from adaquantfl.nvflare import DequantizeFilter, QuantizeFilter
from sizes import Sizes

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--rounds", type=int, default=4)
parser.add_argument("--quantize", action="store_true")
parser.add_argument("--torch", action="store_true")
parser.add_argument("--full", action="store_true")
parser.add_argument("--spoil", default="")
parser.add_argument("--diverges-in", type=int, default=-1)
options = parser.parse_args()
recipe = FedAvgRecipe(
    name="job",
    model=Net(),
    min_clients=2,
    num_rounds=options.rounds,
    train_script=str(Path(__file__).parent / "train.py"),
    train_args=f"--diverges-in {options.diverges_in}",
    params_transfer_type=TransferType.FULL if options.full else TransferType.DIFF,
    server_expected_format=ExchangeFormat.PYTORCH if options.torch else ExchangeFormat.NUMPY,
    key_metric="loss",
    key_metric_mode="min",
)
recipe.add_server_input_filter(Sizes(str(options.folder / "sizes.jsonl"), options.spoil), tasks=["train"])
if options.quantize:
    recipe.add_client_output_filter(QuantizeFilter(), tasks=["train"])
    recipe.add_server_input_filter(DequantizeFilter(), tasks=["train"])
recipe.execute(SimEnv(num_clients=2, workspace_root=str(options.folder)))
