"""The server: federated averaging with quantized updates."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from adaquantfl.flower import AdaQuantStrategy

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    average = FedAvg(fraction_evaluate=0.0)
    if config["rule"] == "auto":
        strategy = AdaQuantStrategy(average)  # line 2: around your strategy
    else:  # to compare: the paper's rule, a fixed level, or "fp32"
        downlink = "model" if config["rule"] == "fp32" else "exact"
        strategy = AdaQuantStrategy(average, rule=str(config["rule"]), downlink=downlink)
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
            f"round {number:3}  s {metrics.get('aq_s', '-'):>4}  loss {metrics['train_loss']:.3f}  "
            f"accuracy {accuracy:.3f}  {metrics['aq_message_bytes_up'] / 1000:10,.1f} kB up  "
            f"{metrics['aq_message_bytes_down'] / 1000:10,.1f} kB down"
        )
    for name, first in (("all rounds", 1), ("from round 2", 2)):
        counted = [metrics for number, metrics in result.train_metrics_clientapp.items() if number >= first]
        up, down = (sum(metrics[f"aq_message_bytes_{way}"] for metrics in counted) / 1000 for way in ("up", "down"))
        print(f"{name}: {up:,.1f} kB up, {down:,.1f} kB down")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.build()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(net)})
