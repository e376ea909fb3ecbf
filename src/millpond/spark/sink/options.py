"""The options of a sink, with the names of Spark's Kafka sink where it has one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from millpond.model.errors import InvalidRequest
from millpond.model.topics import check_partition_count
from millpond.records import Codec
from millpond.spark.place import Place

CODECS: Final[Mapping[str, Codec]] = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
BOOLEANS: Final = {"true": True, "false": False}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """What to do with a topic that does not exist. None means the brokers' setting."""

    creates: bool | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    place: Place
    topic: str | None
    """The topic of all rows; without it, each row's `topic` column names one."""
    codec: Codec
    """Used for topics that keep their producers' codec."""
    creation: TopicCreation
    transaction: tuple[str, int] | None
    """`txnAppId` and `txnVersion`: the application that numbers its writes, and the number of this write."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        given = {name.lower(): value for name, value in options.items()}
        return cls(
            place=Place.from_options(given),
            topic=given.get("topic"),
            codec=_choice(given, "kafka.compression.type", CODECS, "none"),
            creation=_creation(given),
            transaction=_transaction(given),
        )


def _transaction(given: Mapping[str, str]) -> tuple[str, int] | None:
    if ("txnappid" in given) != ("txnversion" in given):
        raise InvalidRequest(reason="options txnAppId and txnVersion belong together: one of them is missing")
    return (given["txnappid"], _number(given, "txnversion", "")) if "txnappid" in given else None


def _creation(given: Mapping[str, str]) -> TopicCreation:
    return TopicCreation(
        _choice(given, "createtopics", BOOLEANS, "") if "createtopics" in given else None,
        check_partition_count(_number(given, "partitions", "")) if "partitions" in given else None,
    )


def _number(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default)
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(reason=f"option {name} is {text!r}, which is not a number") from None


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, T], default: str) -> T:
    text = given.get(name, default)
    if text.lower() not in choices:
        raise InvalidRequest(reason=f"option {name} is {text!r}, and not one of {', '.join(choices)}")
    return choices[text.lower()]
