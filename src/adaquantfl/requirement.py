"""Which versions of other frameworks this package works with: their APIs change from one minor version to the next."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Framework:
    """extra: of this package, and the module that needs it. supported: minor versions, the newest last."""

    title: str
    package: str
    extra: str
    supported: tuple[str, ...]
    command: str = ""  # what pip installs, where it is not just the package

    def require(self) -> None:
        """ImportError with a sentence where it is missing or of another version."""
        try:
            found = version(self.package)
        except PackageNotFoundError:
            raise ImportError(
                f"adaquantfl.{self.extra} needs {self.title}, which is not installed. In a checkout of adaquantfl: "
                f"pip install '.[{self.extra}]'"
            ) from None
        if ".".join(found.split(".")[:2]) not in self.supported:
            raise ImportError(
                f"adaquantfl.{self.extra} works with {self.package} {' and '.join(self.supported)}, but {self.package} "
                f"{found} is installed. Run: pip install '{self.command or self.package}~={self.supported[-1]}.0'"
            )


FLOWER = Framework("Flower", "flwr", "flower", ("1.41", "1.42"), "flwr[simulation]")
NVFLARE = Framework("NVFlare", "nvflare", "nvflare", ("2.9",))
