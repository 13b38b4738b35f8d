"""What the exact downlink saves: the paper's CNN on the bundled sample, 60 rounds, with `exact` and with `model`.

python -m evidence.studies.downlink        two runs of a minute or two; the record is evidence/records/downlink.json
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import run
from evidence.studies.traces import current_commit

RECORD = Path("evidence") / "records" / "downlink.json"
ROUNDS = 60


def main() -> None:
    """Run both, and keep each round's bytes of all clients."""
    record: dict[str, object] = {"commit": current_commit()}
    for downlink in ("exact", "model"):
        changes = {"dataset": "fashion-mnist-sample", "rounds": ROUNDS, "evaluate_every": ROUNDS, "downlink": downlink}
        config = load_config("fmnist-cnn-iid", changes)
        with tempfile.TemporaryDirectory() as folder:
            summary = run(config, Path(folder) / "run")
            lines = [json.loads(line) for line in (Path(folder) / "run" / "history.jsonl").read_text().splitlines()]
        record[downlink] = {
            "clients": config.clients,
            "dimension": summary["dimension"],
            "model_sha256": summary["model_sha256"],
            **{name: [line[name] for line in lines] for name in ("s", "wire_bytes_up", "wire_bytes_down")},
        }
    RECORD.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
