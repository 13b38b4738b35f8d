"""Which NVFlare this package works with. Filters and recipes change from one minor version to the next."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

SUPPORTED = ("2.9",)


def require_nvflare() -> None:
    """ImportError with a sentence where NVFlare is missing or of another version."""
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        raise ImportError(
            "adaquantfl.nvflare needs NVFlare, which is not installed. Run: pip install 'adaquantfl[nvflare]'"
        ) from None
    if ".".join(found.split(".")[:2]) not in SUPPORTED:
        raise ImportError(
            f"adaquantfl.nvflare works with nvflare {' and '.join(SUPPORTED)}, but nvflare {found} is installed. "
            f"Run: pip install 'nvflare~={SUPPORTED[-1]}.0'"
        )
