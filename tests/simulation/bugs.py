"""Bugs to be found: each undoes one rule of the engine, in this process, for as long as it is held."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from millpond.catalog import appends, writers
from millpond.log.buffer import AppendResult
from millpond.log.flights import Flight, Flights, Phase
from millpond.log.flush import Flush
from millpond.log.flusher import Flusher
from millpond.queues.dispatcher_state import TrackedKey


@contextmanager
def ack_before_commit() -> Iterator[None]:
    """Producers are answered when their flush is handed to the writer, with the offsets it will probably get."""
    submit = Flusher._submit

    def answer_and_submit(self: Flusher, flight: Flight[Flush]) -> None:
        for topic_partition, pendings in flight.cargo.buffer.appends.items():
            offset = self._end_of(topic_partition)
            for pending in pendings:
                if not pending.future.done():
                    pending.future.set_result(AppendResult(offset, 0, pending.timestamp))
                offset += pending.records
        submit(self, flight)

    with mock.patch.object(Flusher, "_submit", answer_and_submit):
        yield


@contextmanager
def no_epoch_compare() -> Iterator[None]:
    """A commit asks neither whether the partition's epoch is the writer's nor whether the writer is still alive: one
    of the two alone is enough to keep a replaced owner out, since whoever is buried loses all it owned."""
    with ExitStack() as patches:
        without = appends.EXTEND.replace("(epoch = ? OR ? < 0)", "(? IS NOT NULL OR ? < 0)")
        assert without != appends.EXTEND, "the statement is written in another way now"
        patches.enter_context(mock.patch.object(appends, "EXTEND", without))
        number = writers.NUMBER.replace("AND dead_since IS NULL", "")
        assert number != writers.NUMBER, "the statement is written in another way now"
        patches.enter_context(mock.patch.object(writers, "NUMBER", number))
        yield


@contextmanager
def commit_out_of_order() -> Iterator[None]:
    """A flush that is uploaded is committed, although an earlier one of the same partitions is not."""

    def take_whatever_is_uploaded(self: Flights[Flush]) -> list[Flight[Flush]]:
        uploaded = [flight for flight in self if flight.phase is Phase.WAITING]
        for flight in uploaded:
            flight.phase = Phase.COMMITTING
        return uploaded

    with mock.patch.object(Flights, "take_ready", take_whatever_is_uploaded):
        yield


@contextmanager
def key_not_blocked() -> Iterator[None]:
    """The next message of a key is delivered while the one before it is not answered."""
    with mock.patch.object(TrackedKey, "busy", new=False):
        yield


@contextmanager
def none() -> Iterator[None]:
    yield


BUGS: Mapping[str, Callable[[], Any]] = {
    "none": none,
    "ack_before_commit": ack_before_commit,
    "no_epoch_compare": no_epoch_compare,
    "commit_out_of_order": commit_out_of_order,
    "key_not_blocked": key_not_blocked,
}
