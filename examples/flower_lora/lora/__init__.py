"""A Flower app that trains a LoRA adapter."""
