"""Tables, figures and the page: what people look at, made from records. `aq.report(runs)` writes all of it.

The public function and this package share a name, so the module itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Report(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from .write import report

        return report(*arguments, **named)


sys.modules[__name__].__class__ = _Report
