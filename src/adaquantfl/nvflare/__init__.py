"""AdaQuantFL in an NVFlare job: `QuantizeFilter` on the clients' results, `DequantizeFilter` on the server.

docs/nvflare.md is the guide.
"""

from ..requirement import NVFLARE

NVFLARE.require()  # before the modules below import it

from .client import QuantizeFilter  # noqa: E402
from .server import DequantizeFilter  # noqa: E402

__all__ = ["DequantizeFilter", "QuantizeFilter"]
