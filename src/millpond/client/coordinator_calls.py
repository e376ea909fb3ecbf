"""Calls to the broker that coordinates a consumer group."""

from google.protobuf.message import Message as Proto

from millpond.client.calls import ADMIN, Connections, ProtoResponse


class CoordinatorCalls:
    """Follows redirects, also when the group moves, and remembers the broker that responded last."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._address = ""

    async def call(self, name: str, request: Proto, response: type[ProtoResponse]) -> ProtoResponse:
        """Like `Connections.call`."""

        async def attempt(address: str, left_s: float) -> ProtoResponse:
            timeout_s = min(left_s, self._connections.attempt_s)
            found = await self._connections.call_once(
                ADMIN, name, request, response, address=address, timeout_s=timeout_s
            )
            self._address = address
            return found

        return await self._connections.call_with_retries(
            attempt, lambda error: error.retriable, self._address
        )
