"""Tasks of their own for the studies: each file has a function `task` that `adaquantfl run FILE.py:task` takes."""
