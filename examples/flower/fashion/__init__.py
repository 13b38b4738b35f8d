"""A Flower app that trains on Fashion-MNIST."""
