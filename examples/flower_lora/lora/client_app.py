"""The client: trains the adapter on its part of the text and returns the adapter, nothing else."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from adaquantfl.flower import quantize_mod

from . import task

app = ClientApp(mods=[quantize_mod])  # <-- line 1: the reply goes as a quantized update


@app.train()
def train(message: Message, context: Context) -> Message:
    client, clients = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    config = message.content["config"]
    torch.set_num_threads(1)
    net = task.build()
    set_peft_model_state_dict(net, message.content["arrays"].to_torch_state_dict())
    seed = 1000 * int(config["server-round"]) + client
    loss, letters = task.train(net, client, clients, int(config["local-steps"]), float(config["lr"]), seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": letters})
    arrays = ArrayRecord(get_peft_model_state_dict(net))
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
