"""What a subscription is: whom it delivers to, in which order, and what becomes of messages that keep failing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final

from millpond.model.errors import InvalidSubscription
from millpond.model.units import parse_duration_ms

NAME_LENGTH_MAX: Final = 200
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
RESERVED_HEADERS: Final = "millpond-"
"""Headers under this prefix are the broker's; whatever a producer puts there is not believed, nor delivered."""
DELIVER_AT: Final = "millpond-deliver-at"
"""A message that is not to be delivered before this time, in milliseconds since 1970."""
DELAY: Final = "millpond-delay"
"""The same in milliseconds, or as a duration such as `10s`, after the message's own time."""


class Mode(StrEnum):
    """Who gets what.

    shared: each message goes to one consumer, whoever has room; no order. key_shared: the messages of a key go to
    one consumer, in order. exclusive: one consumer, which gets the partition in order. failover: the same, and the
    next one takes over when it goes. multicast: every consumer gets every message, each with a state of its own.
    """

    SHARED = "shared"
    KEY_SHARED = "key_shared"
    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    MULTICAST = "multicast"


class Exhausted(StrEnum):
    """What becomes of a message that has failed as often as it may."""

    DEAD_LETTER = "dead_letter"
    BLOCK = "block"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """Everything about a subscription that may be altered while it lives, except `mode`."""

    mode: Mode = Mode.SHARED
    ack_timeout_ms: int = 30_000
    attempts_max: int = 5
    """How many deliveries of a message may fail."""
    on_exhausted: Exhausted = Exhausted.DEAD_LETTER
    dead_letter_topic: str = ""
    """Empty: `<topic>.<subscription>.dead`, made when it is first needed."""
    backoff_ms: int = 1_000
    """After the first failure; doubles with each, up to `backoff_max_ms`."""
    backoff_max_ms: int = 300_000
    key_window: int = 1
    """key_shared: how many messages of a key may be on their way. 1 is strict: the next one is delivered when the one
    before it is durably settled."""
    leases_max: int = 2_000
    """Deliveries of a partition that may be unanswered at a time."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidSubscription(
                    reason=f"{name} is {getattr(self, name)}, which is not within {least} and {most}"
                )

    @property
    def ordered_by_partition(self) -> bool:
        """Whether a partition is delivered as if all its messages had the same key."""
        return self.mode in (Mode.EXCLUSIVE, Mode.FAILOVER, Mode.MULTICAST)

    @property
    def strict(self) -> bool:
        return self.mode is Mode.KEY_SHARED and self.key_window == 1

    def backoff(self, failed: int, offset: int) -> int:
        """How long a message rests after its `failed`-th failure. Neighbours that failed together come back up to
        20 % sooner or later, each always by the same amount."""
        delay = min(self.backoff_max_ms, self.backoff_ms << min(failed - 1, 40))
        spread = (offset * 0x9E3779B97F4A7C15 + failed) >> 20 & 0xFFFF
        return delay * (80 + 40 * spread // 0xFFFF) // 100

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "ack_timeout_ms": (100, 12 * 3_600_000),
    "attempts_max": (1, 1_000),
    "backoff_ms": (0, 24 * 3_600_000),
    "backoff_max_ms": (0, 7 * 24 * 3_600_000),
    "key_window": (1, 1_000),
    "leases_max": (1, 100_000),
}
DURATIONS: Final = ("ack_timeout_ms", "backoff_ms", "backoff_max_ms")


def config_from(values: Mapping[str, Any], base: SubscriptionConfig | None = None) -> SubscriptionConfig:
    """A config with these values, as people and programs write them; what is not named stays as in `base`."""
    known = {field.name for field in fields(SubscriptionConfig)}
    taken = (base or SubscriptionConfig()).to_json()
    for name, value in values.items():
        if name not in known:
            raise InvalidSubscription(reason=f"there is no {name}; there are {', '.join(sorted(known))}")
        taken[name] = _value(name, value)
    return SubscriptionConfig(**taken)


def differences(wanted: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """The settings named in `wanted` that are otherwise in `existing`: both values by name, wanted first."""
    pairs = {name: (_value(name, wanted[name]), _value(name, existing[name])) for name in wanted}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _value(name: str, value: Any) -> Any:
    try:
        if name == "mode":
            return Mode(value)
        if name == "on_exhausted":
            return Exhausted(value)
        if name == "dead_letter_topic":
            return _checked(value, str)
        if isinstance(value, str):
            return int(value) if value.isdigit() or name not in DURATIONS else parse_duration_ms(value)
        return _checked(value, int)
    except (ValueError, TypeError) as error:
        raise InvalidSubscription(reason=f"{name} cannot be {value!r}") from error


def _checked(value: Any, kind: type) -> Any:
    """Nothing is made of what was meant to be something else, such as 2.5 or true of a number."""
    if type(value) is not kind:
        raise TypeError(value)
    return value


def check_name(name: str) -> str:
    """The rule of topic names, so that a subscription can be named in a topic's."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not set(name) <= NAME_CHARACTERS or name in (".", ".."):
        raise InvalidSubscription(
            reason=f"the name {name[:80]!r}: 1 to {NAME_LENGTH_MAX} of letters, digits, '.', '_' and '-'"
        )
    return name
