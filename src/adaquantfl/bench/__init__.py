"""A ruler for methods of any kind: tasks, rounds, real bytes both ways, and what float32 reaches."""
