"""Clients that begin to connect and stop in the middle, as a process of their own.

    python -m tests.faults.security.slow_clients PORT COUNT tls|sasl

Prints how many have been opened, and holds them until its input ends. They come from many addresses of this machine.
"""

import contextlib
import socket
import sys

from tests.unit.security.proofs import ScramClient

from millpond.protocol import encode_request
from millpond.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

PER_ADDRESS = 100
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20)


def half_a_login():
    """The mechanism and the first message; the last one never comes."""
    sent = [
        encode_request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, 1, "slow"),
        encode_request(SaslAuthenticateRequest(auth_bytes=ScramClient("mallory").first()), 2, 2, "slow"),
    ]
    return b"".join(buffer for each in sent for buffer in each.buffers)


def main(port, count, kind):
    beginning = HALF_A_HELLO if kind == "tls" else half_a_login()
    opened, refused = [], 0
    for number in range(count):
        client = socket.socket()
        client.settimeout(30)
        client.bind((f"127.0.{1 + number // PER_ADDRESS // 250}.{1 + number // PER_ADDRESS % 250}", 0))
        try:
            client.connect(("127.0.0.1", port))
            client.sendall(beginning)
        except OSError:
            refused += 1
        opened.append(client)
    print(len(opened), refused, flush=True)
    sys.stdin.read()
    for each in opened:
        with contextlib.suppress(OSError):
            each.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
