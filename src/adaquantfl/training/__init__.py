"""Tasks: data sets, who holds which part of them, and tasks of your own. What needs PyTorch is not imported here."""

from .datasets import Dataset, DatasetInfo, available, load
from .download import get
from .own import OwnTask
from .partitions import label_counts, partition

__all__ = ["Dataset", "DatasetInfo", "OwnTask", "available", "get", "label_counts", "load", "partition"]
