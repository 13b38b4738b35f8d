"""The doctests of `adaquantfl.nvflare` run where NVFlare is installed: `make test-nvflare`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("nvflare") else ["adaquantfl/nvflare/*"]
