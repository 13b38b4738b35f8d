"""Generators of the figures and tables in README and docs, from the records."""
