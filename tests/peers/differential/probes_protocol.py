"""Frames, versions and metadata: what a connection answers before anything is stored."""

import struct
from typing import Any

from tests.peers.differential.subject import Subject, now_ms, probe
from tests.peers.differential.wire import CORRELATION_ID, Wire, error_name, make, plain

from millpond.protocol import decode, encode_request
from millpond.protocol.messages import api_versions, cluster, metadata, sasl

UNKNOWN_ID = bytes(range(1, 17))


def _versions(subject: Subject, version: int) -> Any:
    request = make(api_versions.ApiVersionsRequest, "probe", "1.0")
    return subject.ask(request, version)


@probe
def api_versions_of_every_version(subject: Subject) -> Any:
    return {str(version): error_name(_versions(subject, version).error_code) for version in range(5)}


@probe
def api_versions_keys(subject: Subject) -> Any:
    answer = _versions(subject, 3)
    return {str(each.api_key): f"{each.min_version}-{each.max_version}" for each in answer.api_keys}


@probe
def api_versions_features(subject: Subject) -> Any:
    answer = _versions(subject, 4)
    return {
        "supported": {
            each.name: f"{each.min_version}-{each.max_version}" for each in answer.supported_features
        },
        "finalized": {each.name: each.max_version_level for each in answer.finalized_features},
        "epoch is known": answer.finalized_features_epoch >= 0,
    }


@probe
def api_versions_of_an_unknown_version(subject: Subject) -> Any:
    """The answer has the body of version 0, and the connection stays usable (KIP-511)."""
    answer = subject.wire.raw(18, 99, b"\x06probe\x041.0\0", flexible=True)
    if isinstance(answer, str):
        return answer
    told = decode(api_versions.ApiVersionsResponse, 0, answer, 4)
    return {
        "error_code": error_name(told.error_code),
        "keys": [f"{each.api_key}: {each.min_version}-{each.max_version}" for each in told.api_keys],
        "then": error_name(_versions(subject, 3).error_code),
    }


@probe
def api_versions_with_a_client_name_that_is_not_allowed(subject: Subject) -> Any:
    names = {"empty": "", "space": "a b", "slash": "a/b", "long": "a" * 300, "plain": "a-b.c"}
    seen = {}
    for kind, name in names.items():
        answer = subject.ask(make(api_versions.ApiVersionsRequest, name, "1"), 3)
        seen[kind] = error_name(answer.error_code)
    return seen


def _after(subject: Subject, key: int, version: int, body: bytes = b"") -> Any:
    with Wire(subject.address) as wire:
        answer = wire.raw(key, version, body)
        return answer if isinstance(answer, str) else f"{len(answer)} bytes"


@probe
def requests_of_unknown_keys_and_versions(subject: Subject) -> Any:
    return {
        "key 999": _after(subject, 999, 0),
        "key -1": _after(subject, -1, 0),
        "Produce v2": _after(subject, 0, 2, bytes(16)),
        "Produce v99": _after(subject, 0, 99, bytes(16)),
        "Fetch v3": _after(subject, 1, 3, bytes(16)),
        "Metadata v99": _after(subject, 3, 99, bytes(16)),
        "Metadata v-1": _after(subject, 3, -1, bytes(16)),
        "LeaderAndIsr v0": _after(subject, 4, 0, bytes(16)),
    }


def _frame(message: Any, version: int) -> bytes:
    return b"".join(encode_request(message, version, CORRELATION_ID, "probe").buffers)


def _reaction(subject: Subject, data: bytes) -> Any:
    with Wire(subject.address) as wire:
        wire.write(data)
        answer = wire.receive(3)
        return answer if isinstance(answer, str) else f"{len(answer) > 0 and 'an'} answer"


@probe
def frames_that_are_wrong(subject: Subject) -> Any:
    good = _frame(make(metadata.MetadataRequest, []), 1)
    cut = struct.pack(">i", len(good) - 4 - 2) + good[4:-2]
    longer = struct.pack(">i", len(good) - 4 + 3) + good[4:] + b"abc"
    return {
        "negative length": _reaction(subject, struct.pack(">i", -5)),
        "length zero": _reaction(subject, struct.pack(">i", 0)),
        "a length of 2 GiB": _reaction(subject, struct.pack(">i", 0x7FFFFFFF)),
        "just above the limit": _reaction(subject, struct.pack(">i", 100 * 1024 * 1024 + 1)),
        "a body cut short": _reaction(subject, cut),
        "bytes behind the body": _reaction(subject, longer),
        "HTTP": _reaction(subject, b"GET / HTTP/1.1\r\n\r\n"),
        "TLS": _reaction(subject, bytes.fromhex("16030100c8010000c40303")),
        "a header of three bytes": _reaction(subject, struct.pack(">i", 3) + b"abc"),
    }


@probe
def a_null_client_id(subject: Subject) -> Any:
    body = struct.pack(">hhih", 18, 0, CORRELATION_ID, -1)
    subject.wire.write(struct.pack(">i", len(body)) + body)
    answer = subject.wire.receive()
    return answer if isinstance(answer, str) else error_name(struct.unpack_from(">h", answer, 4)[0])


@probe
def requests_in_one_write_are_answered_in_order(subject: Subject) -> Any:
    request = make(api_versions.ApiVersionsRequest)
    parts = [b"".join(encode_request(request, 0, number, None).buffers) for number in range(5)]
    subject.wire.write(b"".join(parts))
    answers = [subject.wire.receive() for _ in parts]
    return [struct.unpack_from(">i", each)[0] if isinstance(each, bytes) else each for each in answers]


@probe
def sasl_where_none_is_set_up(subject: Subject) -> Any:
    handshake = subject.tell(make(sasl.SaslHandshakeRequest, "PLAIN"), 1)
    return {"handshake": handshake, "then": plain(_versions(subject, 0).error_code, "error_code")}


def _metadata(subject: Subject, names: Any, version: int, create: bool = False) -> Any:
    wanted = None if names is None else [make(metadata.MetadataRequestTopic, name=name) for name in names]
    request = make(metadata.MetadataRequest, wanted, allow_auto_topic_creation=create)
    answer = subject.tell(request, version)
    return answer if isinstance(answer, str) else answer["topics"]


@probe
def metadata_of_a_topic_in_every_version(subject: Subject) -> Any:
    name = subject.topic(2)
    return {str(version): _metadata(subject, [name], version) for version in range(1, 14)}


@probe
def metadata_of_topics_that_are_not_there(subject: Subject) -> Any:
    cases = {"unknown": subject.name(), "slash": "a/b", "empty": "", "dots": "..", "long": "a" * 250}
    return {kind: _metadata(subject, [name], 9) for kind, name in cases.items()}


@probe
def metadata_of_no_topics_and_of_all(subject: Subject) -> Any:
    name = subject.topic()

    def has(topics: Any) -> Any:
        return topics if isinstance(topics, str) else any(each["name"] == name for each in topics)

    return {
        "v0, empty": has(_metadata(subject, [], 0)),
        "v1, empty": has(_metadata(subject, [], 1)),
        "v1, null": has(_metadata(subject, None, 1)),
        "v12, empty": has(_metadata(subject, [], 12)),
        "v12, null": has(_metadata(subject, None, 12)),
        "same name twice": len(_metadata(subject, [name, name], 9)),
    }


@probe
def metadata_by_topic_id(subject: Subject) -> Any:
    name = subject.topic()
    known = subject.topic_id(name)

    def by_id(topic_id: bytes, version: int, text: str | None = None) -> Any:
        wanted = make(metadata.MetadataRequestTopic, topic_id=topic_id, name=text)
        answer = subject.tell(
            make(metadata.MetadataRequest, [wanted], allow_auto_topic_creation=False), version
        )
        return answer if isinstance(answer, str) else answer["topics"]

    return {
        "known": by_id(known, 12),
        "unknown": by_id(UNKNOWN_ID, 12),
        "id and name": by_id(known, 12, name),
        "neither": by_id(bytes(16), 12),
        "v10 with an id": by_id(known, 10, name),
    }


@probe
def metadata_creates_a_topic_if_it_may(subject: Subject) -> Any:
    name, other = subject.name(), "not/allowed"
    first = _metadata(subject, [name], 9, create=True)
    later = subject.until(
        lambda: _metadata(subject, [name], 9), lambda topics: topics[0]["error_code"] == "NONE"
    )
    return {"first": first[0]["error_code"], "later": later, "invalid": _metadata(subject, [other], 9, True)}


@probe
def metadata_of_brokers(subject: Subject) -> Any:
    answer = subject.tell(make(metadata.MetadataRequest, []), 12)
    return {key: answer[key] for key in ("brokers", "cluster_id", "controller_id")}


@probe
def describe_cluster(subject: Subject) -> Any:
    return {
        "brokers": subject.tell(make(cluster.DescribeClusterRequest), 1),
        "controllers": subject.tell(make(cluster.DescribeClusterRequest, endpoint_type=2), 1),
        "an unknown kind": subject.tell(make(cluster.DescribeClusterRequest, endpoint_type=7), 1),
    }


@probe
def log_dirs(subject: Subject) -> Any:
    name = subject.topic(2)
    subject.write(name, "a", timestamp=now_ms())
    asked = [
        make(cluster.DescribableLogDirTopic, name, [0, 1, 9]),
        make(cluster.DescribableLogDirTopic, "nobody", [0]),
    ]
    everything = subject.ask(make(cluster.DescribeLogDirsRequest, None), 4)
    return {
        "asked": subject.tell(make(cluster.DescribeLogDirsRequest, asked), 4),
        "all has it": any(topic.name == name for each in everything.results for topic in each.topics),
    }
