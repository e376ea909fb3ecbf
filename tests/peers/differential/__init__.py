"""What a Kafka broker observably does: probes that ask one question each and return plain data.

`python -m tests.peers.differential HOST:PORT` prints every answer as JSON; `test_differential.py` compares those of
Apache Kafka with those of Millpond.
"""
