"""One measurement: a rate, latencies, and the peer's rate in the same round."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    interface: str
    load: str
    rate: float
    p50_ms: float
    p99_ms: float
    peer: str
    peer_rate: float

    @property
    def name(self) -> str:
        return f"{self.interface}, {self.load}"
