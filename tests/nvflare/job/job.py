"""FedAvg with and without our line: python job.py FOLDER [--quantize] [--torch] [--full] [--spoil]."""

from __future__ import annotations

import argparse
from pathlib import Path

from net import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.recipe import SimEnv

from adaquantfl.nvflare import quantize
from sizes import Sizes

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--quantize", action="store_true")
parser.add_argument("--torch", action="store_true")
parser.add_argument("--full", action="store_true")
parser.add_argument("--spoil", action="store_true", help="the replies of the second round")
options = parser.parse_args()
recipe = FedAvgRecipe(
    name="job",
    model=Net(),
    min_clients=2,
    num_rounds=4,
    train_script=str(Path(__file__).parent / "train.py"),
    params_transfer_type=TransferType.FULL if options.full else TransferType.DIFF,
    server_expected_format=ExchangeFormat.PYTORCH if options.torch else ExchangeFormat.NUMPY,
    key_metric="loss",
    key_metric_mode="min",
)
recipe.add_server_input_filter(Sizes(str(options.folder / "up.jsonl"), options.spoil), tasks=["train"])
recipe.add_client_input_filter(Sizes(str(options.folder / "down.jsonl")), tasks=["train"])
if options.quantize:
    quantize(recipe)
recipe.execute(SimEnv(num_clients=2, workspace_root=str(options.folder)))
