"""The gRPC face: Millpond's own services, and the small one of the MiniKafka project beside them."""

from millpond.frontends.rpc.server import RpcServer, RpcServices

__all__ = ["RpcServer", "RpcServices"]
