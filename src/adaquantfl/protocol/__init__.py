"""Federated local SGD: the client, the server, and what a run writes down."""
