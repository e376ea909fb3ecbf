"""Share groups (KIP-932): a state machine without I/O, and its assignor.

Reading order: `messages` has requests and responses, `group` the transitions, `state` the data, `assignor` decides
which member reads which partitions. What members read there is not decided here: a share group has one subscription in
each topic, which has the state of the messages.
"""
