"""AdaQuantFL in a Flower app: `mods=[quantize_mod]` on the ClientApp, `AdaQuantStrategy(FedAvg(...))` on the ServerApp.

The strategy holds an `aq.Server`, the mod an `aq.Client`; Flower carries their bytes. docs/flower.md is the guide.
"""

from ..requirement import FLOWER

FLOWER.require()  # before the modules below import it

from .mod import quantize_mod  # noqa: E402
from .strategy import AdaQuantStrategy  # noqa: E402

__all__ = ["AdaQuantStrategy", "quantize_mod"]
