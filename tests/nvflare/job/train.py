"""A client of NVFlare's Client API: nothing here knows of quantization."""

from __future__ import annotations

import nvflare.client as flare
import torch
from net import Net, data
from torch.nn.functional import cross_entropy


def main() -> None:
    torch.set_num_threads(1)
    flare.init()
    site = int(flare.get_site_name().removeprefix("site-"))
    x, y = data(site, 640)
    test_x, test_y = data(0, 1000)
    model = Net()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model.load_state_dict(received.params)
        model.eval()
        with torch.no_grad():
            loss = cross_entropy(model(test_x), test_y).item()
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for batch in torch.randperm(640, generator=torch.Generator().manual_seed(received.current_round)).split(32):
            optimizer.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        weights = model.state_dict()
        flare.send(flare.FLModel(params=weights, metrics={"loss": loss}, meta={"NUM_STEPS_CURRENT_ROUND": 20}))


if __name__ == "__main__":
    main()
