"""The classic group protocol: members join generations, and one of them assigns the partitions. No I/O, no clock.

Reading order: `messages` are its requests and responses, `members` and `state` its data, `group` the state machine,
`snapshot` what is stored of it.
"""
