"""Quantizers: an update becomes integers. `uniform` is the paper's."""
