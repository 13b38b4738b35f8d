"""The doctests of `adaquantfl.nvflare` run where NVFlare is installed: `make test-nvflare`."""

from importlib.metadata import distributions

collect_ignore_glob = [] if any(distributions(name="nvflare")) else ["adaquantfl/nvflare/*"]
