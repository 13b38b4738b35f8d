"""NVFlare has an environment of its own (`make test-nvflare`); elsewhere these tests are skipped."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = ["job/*"]  # programs that NVFlare's simulator runs
if find_spec("nvflare") is None:
    collect_ignore_glob.append("test_[!r]*.py")  # all but test_requirement.py
