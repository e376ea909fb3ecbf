"""Timestamps, retention by age and offsets by time: the same batches are sent to Apache Kafka and to Millpond.

`python -m tests.peers.times` prints one row for each case. `cases.py` has the batches, `known.py` every expected
difference. A difference that is not listed fails the comparison, and so does a listed one that does not occur.
"""
