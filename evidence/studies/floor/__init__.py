"""Rivals at float32's own accuracy: bytes until a method is as good as float32 is after its rounds.

    python -m evidence.studies.floor --trials            the trials of settings, on a task that is not judged
    python -m evidence.studies.floor                     run what is missing, then print the tables
    python -m evidence.studies.floor --tasks cnn-iid --seeds 1
    python -m evidence.studies.floor --constants         every constant number of levels, to know the best afterwards
    python -m evidence.studies.floor --luck              float32 with other mini-batches, to know what a miss says
    python -m evidence.studies.floor --table             only print the tables of what is recorded

tasks.py: what is trained. methods.py: who is compared, with at most four settings each. rivals.py, shifts.py, klms.py,
powersgd.py and decomfl.py: methods that the package does not have. records.py: one line for each finished run.
tables.py: the crossing and the tables. constants.py: the best constant of each task, found afterwards. luck.py: whether
float32 reaches it again. lag.py: rounds behind float32.
"""
