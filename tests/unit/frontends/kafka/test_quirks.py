"""What clients send although the protocol says otherwise."""

from millpond.protocol import decode, read_response_header
from millpond.protocol.messages.metadata import MetadataRequest, MetadataResponse

HEADER = bytes.fromhex("0003 000d 00000007 ffff 00")
"""Metadata v13, correlation id 7, no client id, no tags."""


async def test_librdkafka_writes_a_null_array_in_four_bytes(interface):
    """All topics: the array, then three fields that are read from its rest, then those fields again."""
    await interface.topic()
    await interface.client.send_bytes(HEADER + bytes.fromhex("00000000 010000"))
    answer = await interface.client.receive()
    correlation_id, position = read_response_header(answer, MetadataRequest.api_key, 13)
    told = decode(MetadataResponse, 13, answer, position)
    assert correlation_id == 7
    assert [topic.name for topic in told.topics] == ["__consumer_offsets", "orders"]
