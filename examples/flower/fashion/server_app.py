"""The server: federated averaging, with the number of levels chosen by AdaQuantFL's rule."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import adaquantfl as aq
from adaquantfl.flower import AdaQuantStrategy

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    rule = aq.AdaQuant(s0=2) if config["quantize"] else aq.FullPrecision()
    strategy = AdaQuantStrategy(FedAvg(fraction_evaluate=0.0), rule=rule)  # <-- line 2: around your strategy
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.build().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": config["lr"], "local-steps": config["local-steps"]}),
        evaluate_fn=evaluate,
    )
    for number, metrics in result.train_metrics_clientapp.items():
        accuracy = result.evaluate_metrics_serverapp[number]["accuracy"]
        print(
            f"round {number:3}  s {metrics.get('aq_s', '-'):>3}  loss {metrics['train_loss']:.3f}  "
            f"accuracy {accuracy:.3f}  {metrics['aq_wire_bytes'] / 1000:10,.1f} kB up"
        )
    total = sum(metrics["aq_wire_bytes"] for metrics in result.train_metrics_clientapp.values())
    print(f"total {total / 1000:,.1f} kB up")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.build()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(net)})
