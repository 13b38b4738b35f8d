"""The record of examples/flower_lora, from what the app printed: evidence/records/flower-lora.json.

    cd examples/flower_lora
    flwr run . --stream --federation-config "num-supernodes=4" --run-config 'rule="auto"' > auto.log
    flwr run . --stream --federation-config "num-supernodes=4" --run-config 'rule="fp32"' > fp32.log
    python ../../benchmarks/flower_lora.py auto.log fp32.log

The app's README says how to start a SuperLink for it.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "flwr run . --stream --federation-config 'num-supernodes=4' --run-config 'rule=\"RULE\"'"
LINE = re.compile(
    r"round +(\d+)  train loss ([\d.]+)  test loss ([\d.]+) +([\d,.]+) kB up +([\d,.]+) kB down", re.MULTILINE
)


def rounds(output: str) -> list[dict[str, float]]:
    """What the app printed of each round.

    >>> rounds("round   1  train loss 4.115  test loss 4.050      34.5 kB up   1,394.2 kB down")
    [{'round': 1, 'train_loss': 4.115, 'test_loss': 4.05, 'kB_up': 34.5, 'kB_down': 1394.2}]
    """
    names = ("train_loss", "test_loss", "kB_up", "kB_down")
    found = [[float(value.replace(",", "")) for value in line] for line in LINE.findall(output)]
    return [{"round": int(number), **dict(zip(names, values, strict=True))} for number, *values in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("auto", type=Path, help="what the app printed with the default")
    parser.add_argument("fp32", type=Path, help="and without quantizing")
    parser.add_argument("--out", type=Path, default=ROOT / "evidence" / "records" / "flower-lora.json")
    options = parser.parse_args()
    runs = {name: rounds(getattr(options, name).read_text(encoding="utf-8")) for name in ("auto", "fp32")}
    versions = {name: version(name) for name in ("flwr", "peft", "transformers", "torch")}
    found = {"command": COMMAND, "versions": versions, "runs": runs}
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
