"""The gloo engine: torch.distributed between a server and one process a client, on this machine or on several."""
