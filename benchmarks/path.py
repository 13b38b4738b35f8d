"""How much code one update runs through: functions and files of adaquantfl, for one client in one round.

python benchmarks/path.py [local] [flower]

The second round is counted, so that what is set up once does not count, and functions with a name: comprehensions and
lambdas belong to the function around them. `local` is the local engine with the preset `demo`, training included. In
`flower` the strategy's steps and the client's mod are called directly, with Flower's messages but without a network or
Ray. Messages unpacked, frames read and digests computed are counted by call, for both ways together.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import adaquantfl as aq

PACKAGE = str(Path(aq.__file__).parent)
HASHES = ("openssl_sha256", "openssl_blake2b", "blake2b", "sha256")


class Calls:
    """The functions of the package that were called, and how often."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.hashes = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._saw)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _saw(self, frame: FrameType, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            self.calls[frame.f_code] += 1
        elif event == "c_call" and getattr(argument, "__name__", "") in HASHES:
            self.hashes += 1

    def count(self, folder: str, *names: str) -> int:
        """How often functions of these names below a folder were called."""
        where = f"{PACKAGE}/{folder}"
        return sum(n for code, n in self.calls.items() if code.co_filename.startswith(where) and code.co_name in names)

    @property
    def functions(self) -> int:
        """How many functions with a name were called."""
        return sum(not code.co_name.startswith("<") for code in self.calls)

    @property
    def files(self) -> int:
        """In how many files they are."""
        return len({code.co_filename for code in self.calls})

    def by_folder(self) -> str:
        """The functions and files of each folder of the package, most functions first."""
        found: dict[str, list[str]] = {}
        for code in self.calls:
            if not code.co_name.startswith("<"):
                name = code.co_filename.removeprefix(f"{PACKAGE}/")
                found.setdefault(name.partition("/")[0], []).append(name)
        order = sorted(found.items(), key=lambda item: -len(item[1]))
        return ", ".join(f"{folder} {len(names)} in {len(set(names))}" for folder, names in order)

    def __str__(self) -> str:
        unpacks, reads = self.count("protocol", "unpack"), self.count("codecs/frame.py", "read_frame")
        return (
            f"{self.functions} functions {self.files} files ({unpacks} unpacks, {reads} frame reads, "
            f"{self.hashes} digests)"
        )


def local() -> Calls:
    """One client of the local engine."""
    from adaquantfl.engines.local import LocalEngine
    from adaquantfl.runs.config import load_config
    from adaquantfl.runs.loop import Run

    changes = {"model": "mlp", "clients": 1, "rounds": 3, "tau": 1, "workers": 1, "evaluate_every": 3}
    engine = LocalEngine(config := load_config("demo", changes))
    try:
        run, found = Run(config, engine), Calls()
        run.play_round(lambda line: None)
        with found.counted():
            run.play_round(lambda line: None)
    finally:
        engine.close()
    return found


def flower() -> Calls:
    """One client of a Flower app with its own training, by the defaults."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    from adaquantfl.flower import AdaQuantStrategy, quantize_mod

    class Grid:
        def get_node_ids(self) -> list[int]:
            return [7]

    def train(message: Message, context: Context) -> Message:
        trained = {name: Array(array.numpy() + 0.01) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": 10, "train_loss": 0.5})
        return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a ServerApp's, of which there is none
    generator = np.random.default_rng(0)
    shapes = {"weight": (300, 40), "bias": (40,)}
    arrays = ArrayRecord({name: Array(generator.standard_normal(s, np.float32)) for name, s in shapes.items()})
    strategy: Any = AdaQuantStrategy(FedAvg(min_train_nodes=1, min_available_nodes=1, min_evaluate_nodes=1))
    context = Context(run_id=1, node_id=7, node_config={"partition-id": 0}, state=RecordDict(), run_config={})
    for number in (1, 2):
        found = Calls()
        with found.counted():
            (message,) = strategy.configure_train(number, arrays, ConfigRecord(), Grid())
            reply = quantize_mod(message, context, train)
            new, _ = strategy.aggregate_train(number, [reply])
        arrays = new or arrays
    return found


WAYS: dict[str, Callable[[], Calls]] = {"local": local, "flower": flower}

if __name__ == "__main__":
    for way in sys.argv[1:] or WAYS:
        found = WAYS[way]()
        print(f"{way}: {found}\n  {found.by_folder()}")
