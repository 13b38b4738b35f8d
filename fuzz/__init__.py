"""Fuzzing of everything that reads other people's bytes."""
