"""`make results`: bring every page and every figure up to date with the records."""

from evidence.pages.registry import main

main()
