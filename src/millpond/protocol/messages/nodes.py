"""What several answers say about brokers: who leads a partition now, and where that broker is."""

from millpond.protocol.schema import Int32, String, Struct, field, struct


@struct
class CurrentLeader(Struct):
    """Where the client should turn instead."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
