"""NVFlare has an environment of its own (`make test-nvflare`); elsewhere these tests are left out."""

from __future__ import annotations

from support.installed import installed

collect_ignore_glob = ["job/*"]  # programs that NVFlare's simulator runs
if not installed("nvflare"):
    collect_ignore_glob.append("test_*.py")
