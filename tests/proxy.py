"""A TCP proxy between clients and a broker, on a thread of its own: it cuts, stalls, and swallows answers when told."""

import asyncio
import contextlib
import threading


class Proxy:
    """`address` is where clients connect. What is told to it holds for the connections that exist at that moment;
    `plan` says of each new one what happens to it, and after how many bytes: ("abort", 10_000), or None."""

    def __init__(self, target, plan=lambda: None):
        self._target = target
        self.plan = plan
        self._pairs = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(self._serve())
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.connections = 0

    def cut(self):
        """End every connection in the middle of whatever it carries."""
        self._call(self._each("abort"))

    def stall(self):
        """Let nothing more through, in either direction, and never close: the worst a network can do."""
        self._call(self._each("stall"))

    def drop_responses(self):
        """Requests still arrive; the next answer does not, and ends the connection."""
        self._call(self._each("swallow"))

    def close(self):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _each(self, action):
        for pair in list(self._pairs):
            getattr(pair, action)()

    async def _serve(self):
        return await asyncio.start_server(self._connect, "127.0.0.1", 0)

    async def _connect(self, reader, writer):
        host, port = self._target.rsplit(":", 1)
        try:
            upstream = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        pair = Pair((reader, writer), upstream, self.plan())
        self._pairs.add(pair)
        try:
            await pair.run()
        finally:
            self._pairs.discard(pair)

    async def _close(self):
        self._server.close()
        await self._each("abort")
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)


class Pair:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(self, client, broker, fault):
        self._fault = fault
        self._passed = 0
        self._client = client
        self._broker = broker
        self._open = asyncio.Event()
        self._open.set()
        self._swallowing = False

    async def run(self):
        up = asyncio.ensure_future(self._pump(self._client[0], self._broker[1], answers=False))
        down = asyncio.ensure_future(self._pump(self._broker[0], self._client[1], answers=True))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            for pump in (up, down):
                pump.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(self, reader, writer, *, answers):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                if answers and self._swallowing:
                    return
                writer.write(data[: self._bytes_before_fault(len(data))])
                await writer.drain()
                self._apply_fault(len(data))
                if writer.transport.is_closing():
                    return

    def _bytes_before_fault(self, size):
        return size if self._fault is None else max(0, min(size, self._fault[1] - self._passed))

    def _apply_fault(self, size):
        self._passed += size
        if self._fault is not None and self._passed > self._fault[1]:
            getattr(self, self._fault[0])()
            self._fault = None

    def abort(self):
        self._open.set()
        for _, writer in (self._client, self._broker):
            writer.transport.abort()

    def stall(self):
        self._open.clear()

    def swallow(self):
        self._swallowing = True
