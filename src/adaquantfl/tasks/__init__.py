"""Tasks: data sets, and who holds which part of them. The models, which need PyTorch, are in tasks.models."""

from .datasets import Dataset, DatasetInfo, available, get, load
from .partitions import draw, label_counts, partition

__all__ = ["Dataset", "DatasetInfo", "available", "draw", "get", "label_counts", "load", "partition"]
