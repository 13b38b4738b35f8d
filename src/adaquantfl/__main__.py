"""`python -m adaquantfl` is the command line."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
