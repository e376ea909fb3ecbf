"""The gRPC interface: Millpond's own services and the small service of the MiniKafka project."""

from millpond.frontends.rpc.server import RpcServer, RpcServices

__all__ = ["RpcServer", "RpcServices"]
