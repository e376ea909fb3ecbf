"""Keys and versions nobody speaks here."""

import struct

from tests.hostile.kafka.siege import framed

from millpond.frontends.kafka.registry import HANDLERS
from millpond.protocol import ErrorCode, decode
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

OUTSIDE = (-(2**15), -1, 2**15 - 1)
UNKNOWN_KEYS = sorted({*range(-2, 130), *OUTSIDE} - set(HANDLERS))


def asking(key, version):
    return framed(struct.pack(">hhih", key, version, 77, -1) + bytes(16))


def test_a_key_nobody_knows_closes_the_connection(attacked_broker):
    with attacked_broker("unknown keys") as siege:
        for key in UNKNOWN_KEYS:
            for version in (0, 5):
                with siege.attacker() as attacker:
                    attacker.send(asking(key, version))
                    assert attacker.is_closed()
                assert f"unknown API key {key}." in siege.records.reasons()[-1]


def test_a_version_nobody_speaks_closes_the_connection(attacked_broker):
    with attacked_broker("unknown versions") as siege:
        for key, handler in HANDLERS.items():
            spoken = handler.request.versions
            for version in (spoken.first - 1, spoken.last + 1, *OUTSIDE):
                if handler.request is ApiVersionsRequest:
                    continue
                with siege.attacker() as attacker:
                    attacker.send(asking(key, version))
                    assert attacker.is_closed()
                assert f"v{version}, where {spoken} are supported" in siege.records.reasons()[-1]


def test_a_version_of_api_versions_nobody_speaks_is_answered_with_those_that_are(attacked_broker):
    """KIP-511: whatever the version, so that a client of the future can ask again."""
    with attacked_broker("future clients") as siege:
        spoken = ApiVersionsRequest.versions
        for version in (spoken.first - 1, spoken.last + 1, *OUTSIDE):
            with siege.attacker() as client:
                client.send(asking(ApiVersionsRequest.api_key, version))
                answer = client.receive()
                assert answer[:4] == struct.pack(">i", 77)
                response = decode(ApiVersionsResponse, 0, answer, 4)
                assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
                assert [(each.api_key, each.max_version) for each in response.api_keys] == [(18, spoken.last)]
                assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
