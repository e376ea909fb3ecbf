"""The config of a subscription: which consumers it delivers to, in which order, and what happens to messages
that keep failing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final

from millpond.model.errors import InvalidSubscription
from millpond.model.units import parse_duration_ms

NAME_LENGTH_MAX: Final = 200
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
RESERVED_HEADERS: Final = "millpond-"
"""Headers with this prefix are reserved for the broker. Values that a producer sets there are ignored and not
delivered."""
DELIVER_AT: Final = "millpond-deliver-at"
"""The message is not delivered before this time, in milliseconds since 1970."""
DELAY: Final = "millpond-delay"
"""The same as a delay after the message's own timestamp: in milliseconds, or as a duration such as `10s`."""


class SubscriptionMode(StrEnum):
    """How messages are distributed to consumers.

    shared: each message goes to one consumer that has room; no order. key_shared: the messages of a key go to
    one consumer, in order. exclusive: one consumer, which receives the partition in order. failover: the
    same, and the next consumer takes over when it detaches. multicast: every consumer receives every message
    and has its own state.
    """

    SHARED = "shared"
    KEY_SHARED = "key_shared"
    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    MULTICAST = "multicast"


class ExhaustedAction(StrEnum):
    """What happens to a message that has reached its maximum number of failed deliveries."""

    DEAD_LETTER = "dead_letter"
    BLOCK = "block"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """The settings of a subscription. All except `mode` may be altered later."""

    mode: SubscriptionMode = SubscriptionMode.SHARED
    ack_timeout_ms: int = 30_000
    attempts_max: int = 5
    """Maximum number of failed deliveries of a message."""
    on_exhausted: ExhaustedAction = ExhaustedAction.DEAD_LETTER
    dead_letter_topic: str = ""
    """Empty: `default_topic` of `queues/deadletters.py`, created when it is first needed."""
    backoff_ms: int = 1_000
    """Delay after the first failure; doubles after each further failure, up to `backoff_max_ms`."""
    backoff_max_ms: int = 300_000
    key_window: int = 1
    """key_shared: maximum number of messages of a key in flight. 1 is strict: the next message is delivered
    when the one before it is durably settled."""
    leases_max: int = 2_000
    """Maximum number of deliveries of a partition in flight."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidSubscription(
                    reason=f"{name} is {getattr(self, name)}, which is not within {least} and {most}"
                )

    @property
    def ordered_by_partition(self) -> bool:
        """Whether a partition is delivered as if all its messages had the same key."""
        return self.mode in (
            SubscriptionMode.EXCLUSIVE,
            SubscriptionMode.FAILOVER,
            SubscriptionMode.MULTICAST,
        )

    @property
    def strict(self) -> bool:
        return self.mode is SubscriptionMode.KEY_SHARED and self.key_window == 1

    def backoff(self, failed: int, offset: int) -> int:
        """The delay before a message is redelivered after its `failed`-th failure. It varies by up to 20 % with the
        offset, so that messages that failed together are spread; for the same offset it is always the same."""
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
    """A config with these values, in the forms that users and programs write. Settings that are not named
    stay as in `base`."""
    known = {field.name for field in fields(SubscriptionConfig)}
    taken = (base or SubscriptionConfig()).to_json()
    for name, value in values.items():
        if name not in known:
            raise InvalidSubscription(reason=f"there is no {name}; there are {', '.join(sorted(known))}")
        taken[name] = _value(name, value)
    return SubscriptionConfig(**taken)


def differences(wanted: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """The settings in `wanted` that differ in `existing`: both values by name, wanted first."""
    pairs = {name: (_value(name, wanted[name]), _value(name, existing[name])) for name in wanted}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _value(name: str, value: Any) -> Any:
    try:
        if name == "mode":
            return SubscriptionMode(value)
        if name == "on_exhausted":
            return ExhaustedAction(value)
        if name == "dead_letter_topic":
            return _checked(value, str)
        if isinstance(value, str):
            return int(value) if value.isdigit() or name not in DURATIONS else parse_duration_ms(value)
        return _checked(value, int)
    except (ValueError, TypeError) as error:
        raise InvalidSubscription(reason=f"{name} cannot be {value!r}") from error


def _checked(value: Any, kind: type) -> Any:
    """No conversion from other types: 2.5 or true is not accepted as an integer."""
    if type(value) is not kind:
        raise TypeError(value)
    return value


def check_name(name: str) -> str:
    """The rule of topic names, so that a topic's name can contain a subscription's."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not set(name) <= NAME_CHARACTERS or name in (".", ".."):
        raise InvalidSubscription(
            reason=f"the name {name[:80]!r}: 1 to {NAME_LENGTH_MAX} of letters, digits, '.', '_' and '-'"
        )
    return name
