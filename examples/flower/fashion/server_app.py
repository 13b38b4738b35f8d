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
    quantize = bool(config["quantize"])
    rule, downlink = (aq.AdaQuant(s0=2), "exact") if quantize else (aq.FullPrecision(), "model")
    # line 2: around your strategy
    strategy = AdaQuantStrategy(FedAvg(fraction_evaluate=0.0), rule=rule, downlink=downlink)
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
            f"accuracy {accuracy:.3f}  {metrics['aq_message_bytes_up'] / 1000:10,.1f} kB up  "
            f"{metrics['aq_message_bytes_down'] / 1000:10,.1f} kB down"
        )
    rounds = result.train_metrics_clientapp.values()
    up, down = (sum(metrics[f"aq_message_bytes_{way}"] for metrics in rounds) / 1000 for way in ("up", "down"))
    print(f"total {up:,.1f} kB up, {down:,.1f} kB down")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.build()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(net)})
