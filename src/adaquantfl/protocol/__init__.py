"""One round as a conversation of bytes: server, client, and a file for each stage. No I/O, no clock, no PyTorch."""
