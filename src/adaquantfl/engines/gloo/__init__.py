"""The gloo engine: torch.distributed between a server and one process per client, on one machine or several."""
