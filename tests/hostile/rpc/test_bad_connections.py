"""What reaches the port and is no gRPC, and connections that are begun and left."""

import contextlib
import random
import socket
import struct

from millpond.frontends.kafka.registry import HANDLERS
from millpond.protocol import encode_request
from millpond.protocol.messages.api_versions import ApiVersionsRequest

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def noise(count):
    return random.Random(7).randbytes(count)


KAFKA = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "siege").buffers)
BAD = {
    "nothing": b"",
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(500),
    "Kafka": KAFKA,
    "noise": noise(100_000),
    "zeros": bytes(100_000),
    "half a preface": PREFACE[:10],
    "a preface and noise": PREFACE + noise(10_000),
    "settings and nothing": PREFACE + SETTINGS,
    "a frame of 16 MiB": PREFACE
    + SETTINGS
    + struct.pack(">I", 0xFFFFFF)[1:]
    + b"\x00"
    + bytes(5)
    + bytes(1_000),
    "headers that are noise": PREFACE + SETTINGS + frame(1, 4, 1, noise(200)),
    "headers without end": PREFACE + SETTINGS + frame(1, 0, 1, b"") + frame(9, 0, 1, noise(100)) * 50,
    "data for no stream": PREFACE + SETTINGS + frame(0, 0, 7, noise(100)),
    "resets by the hundred": PREFACE + SETTINGS + frame(3, 0, 1, bytes(4)) * 500,
    "pings by the thousand": PREFACE + SETTINGS + frame(6, 0, 0, bytes(8)) * 2_000,
    "settings by the thousand": PREFACE + SETTINGS * 2_000,
    "a window of nothing": PREFACE + SETTINGS + frame(8, 0, 0, bytes(4)),
}


def connection(siege):
    return socket.create_connection((siege.host, siege.port), timeout=30)


def test_bytes_that_are_no_grpc_harm_nobody(attacked_broker):
    assert HANDLERS, "Kafka's messages are declared, of which one is sent"
    with attacked_broker("no gRPC") as siege, contextlib.ExitStack() as left_open:
        for data in BAD.values():
            with connection(siege) as closed, contextlib.suppress(OSError):
                closed.sendall(data)
            half = left_open.enter_context(connection(siege))
            with contextlib.suppress(OSError):
                half.sendall(data)
            siege.good.prove()
