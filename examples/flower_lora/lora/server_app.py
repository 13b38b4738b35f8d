"""The server: federated averaging of adapters, with quantized updates."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from adaquantfl.flower import AdaQuantStrategy

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    average = FedAvg(fraction_evaluate=0.0)
    if config["rule"] == "auto":
        strategy = AdaQuantStrategy(average)  # <-- line 2: around your strategy
    else:  # to compare: "fp32" sends adapters as Flower alone does
        downlink = "model" if config["rule"] == "fp32" else "exact"
        strategy = AdaQuantStrategy(average, rule=str(config["rule"]), downlink=downlink)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_peft_model_state_dict(task.build())),
        num_rounds=int(config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": config["lr"], "local-steps": config["local-steps"]}),
        evaluate_fn=evaluate,
    )
    for number, metrics in result.train_metrics_clientapp.items():
        loss = result.evaluate_metrics_serverapp[number]["test_loss"]
        print(
            f"round {number:3}  train loss {metrics['train_loss']:.3f}  test loss {loss:.3f}  "
            f"{metrics['aq_message_bytes_up'] / 1000:8,.1f} kB up  "
            f"{metrics['aq_message_bytes_down'] / 1000:8,.1f} kB down"
        )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.build()
    set_peft_model_state_dict(net, arrays.to_torch_state_dict())
    return MetricRecord({"test_loss": task.test_loss(net)})
