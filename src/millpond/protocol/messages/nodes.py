"""Structs about brokers that several responses share: the current leader of a partition, and a broker's address."""

from millpond.protocol.schema import Int32, String, Struct, field, struct


@struct
class CurrentLeader(Struct):
    """The leader that the client should contact instead."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
