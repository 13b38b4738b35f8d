"""AdaQuantFL in a Flower app: `mods=[quantize_mod]` on the ClientApp, `AdaQuantStrategy(FedAvg(...))` on the ServerApp.

The mod turns a client's trained arrays into one quantized update; the strategy tells the clients how many levels to
use, turns their updates back into arrays, and leaves everything else to the strategy that it wraps. docs/flower.md
is the guide.
"""

from .requirement import require_flwr

require_flwr()  # before the modules below import it

from .mod import quantize_mod  # noqa: E402
from .strategy import AdaQuantStrategy, StrategyState  # noqa: E402

__all__ = ["AdaQuantStrategy", "StrategyState", "quantize_mod"]
