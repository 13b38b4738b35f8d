"""AdaQuantFL in an NVFlare job: `quantize(recipe)`, or the two filters in a job's own files."""

from .client import ClientFilter
from .job import quantize
from .server import ServerFilter

__all__ = ["ClientFilter", "ServerFilter", "quantize"]
