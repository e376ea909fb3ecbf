"""The consumer group protocol (KIP-848): the coordinator assigns the partitions, and each member moves to its new
assignment by heartbeats, on its own. No I/O, no clock.

Reading order: `messages` are its requests and responses.
"""
