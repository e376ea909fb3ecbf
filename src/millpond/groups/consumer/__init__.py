"""The consumer group protocol (KIP-848): the coordinator assigns the partitions, and each member moves to its new
assignment by heartbeats, on its own. No I/O, no clock.

Reading order: `messages` are its requests and responses, `members` and `subscriptions` its data, `state` holds them
together, `reconciliation` is how one member moves to its target, `group` is the state machine, `stored` what is stored
of it. `checks` refuses invalid requests, `assignors` compute the target, `topic_regex` matches topics. While clients
are upgraded, `classic_members` serves those of the classic protocol, and `migration` changes the protocol of a group.
"""
