"""Servers that respond and store nothing: the cost of gRPC and HTTP themselves, with the libraries that
Millpond uses."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from millpond.stubs import log_pb2


async def produce(request: log_pb2.ProduceRequest, _: Any) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        numbers=[1] * len(request.messages), partitions=[0] * len(request.messages)
    )


async def produce_stream(
    requests: AsyncIterator[log_pb2.ProduceRequest], context: Any
) -> AsyncIterator[log_pb2.ProduceStreamResponse]:
    async for request in requests:
        produced = await produce(request, context)
        yield log_pb2.ProduceStreamResponse(results=[log_pb2.ProduceResult(produced=produced)])


async def post(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse({"topic": "t", "partition": 0, "offset": 0, "number": 1})


async def main() -> None:
    rpc = grpc.aio.server()
    decode, encode = log_pb2.ProduceRequest.FromString, log_pb2.ProduceResponse.SerializeToString
    encode_stream = log_pb2.ProduceStreamResponse.SerializeToString
    handlers = {
        "Produce": grpc.unary_unary_rpc_method_handler(produce, decode, encode),
        "ProduceStream": grpc.stream_stream_rpc_method_handler(produce_stream, decode, encode_stream),
    }
    rpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("millpond.v1.Log", handlers),))
    port = rpc.add_insecure_port("127.0.0.1:0")
    await rpc.start()
    app = Starlette(routes=[Route("/topics/{topic}/produce/{partition}", post, methods=["POST"])])
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off"))
    serving = asyncio.create_task(web.serve())
    while not web.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    web_port = web.servers[0].sockets[0].getsockname()[1]
    print(json.dumps({"grpc": f"127.0.0.1:{port}", "http": f"127.0.0.1:{web_port}"}), flush=True)
    await serving


if __name__ == "__main__":
    uvloop.run(main())
