"""A partition's transactions in memory: late at worst, never early."""

import asyncio

import pytest

from millpond.catalog.transactions import Aborted, Markers, PartitionMarker, PartitionTransactions
from millpond.log import open_transactions as module
from millpond.log.open_transactions import OpenTransactions
from millpond.model.errors import CatalogUnavailable, InvalidTransactionState
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.producers import SequencedBatch
from millpond.records import MarkerKind

WHERE = TopicPartition(TopicId(bytes(16)), 0)


def batch(producer=7, epoch=0, *, transactional=True):
    return SequencedBatch(producer, epoch, 0, 0, 0, transactional, -1)


def end(view, offset, *, producer=7, first=None):
    """The marker of an abort of what began at `first`, of a commit without."""
    kind = MarkerKind.COMMIT if first is None else MarkerKind.ABORT
    view.ended(Markers(kind, producer, 0, False, 0), PartitionMarker(WHERE, offset, 0, first))


def catalog(end_offset, aborted=(), aborted_from=0, **open_):
    """What the catalog says; `p7=5` is producer 7's transaction, which began at offset 5."""
    rows = {int(name[1:]): (0, first) for name, first in open_.items()}
    return PartitionTransactions(end_offset, rows, [Aborted(*each) for each in aborted], aborted_from)


class Asked:
    """A catalog whose answer comes when the test says so."""

    def __init__(self):
        self.questions = []

    async def __call__(self):
        future = asyncio.get_running_loop().create_future()
        self.questions.append(future)
        return await future

    async def answer(self, view):
        while not self.questions or self.questions[-1].done():
            await asyncio.sleep(0)
        self.questions[-1].set_result(view)


async def loaded(view=None):
    made = OpenTransactions()
    await made.refresh(answering(view or catalog(0)))
    return made


def answering(*views):
    remaining = list(views)

    async def read():
        return remaining.pop(0)

    return read


async def test_it_is_stale_until_the_catalog_has_been_asked():
    view = OpenTransactions()
    assert view.stale
    await view.refresh(answering(catalog(9, p7=5, p8=None)))
    assert not view.stale
    assert view.last_stable(0, 9) == 5


async def test_the_last_stable_offset_follows_the_oldest_open_transaction():
    view = await loaded()
    assert view.last_stable(0, 5) == 5
    view.added(7, 0)
    assert view.last_stable(0, 5) == 5
    view.wrote(batch(8), 5)
    view.wrote(batch(7), 6)
    view.wrote(batch(8), 7)
    assert view.last_stable(0, 8) == 5
    end(view, 8, producer=8)
    assert view.last_stable(0, 9) == 6
    end(view, 9, producer=7)
    assert view.last_stable(0, 10) == 10


async def test_the_last_stable_offset_lies_inside_the_log():
    view = await loaded(catalog(9, p7=5))
    assert view.last_stable(0, 3) == 3
    assert view.last_stable(7, 9) == 7
    assert view.last_stable(5, 9) == 5


async def test_growth_by_others_makes_it_stale_until_the_catalog_has_said_what_it_was():
    view = await loaded(catalog(6, p7=5))
    view.need(6)
    assert not view.stale
    view.need(7)
    assert view.stale
    await view.refresh(answering(catalog(7)))
    assert view.last_stable(0, 7) == 7


async def test_an_answer_that_is_too_old_is_asked_again():
    view, asked = OpenTransactions(), Asked()
    waiting = asyncio.ensure_future(view.refresh(asked))
    await asyncio.sleep(0)
    view.need(7)
    await asked.answer(catalog(6, p7=5))
    await asked.answer(catalog(7))
    await waiting
    assert len(asked.questions) == 2
    assert view.last_stable(0, 7) == 7


async def test_all_who_wait_share_one_question():
    view, asked = OpenTransactions(), Asked()
    waiting = [asyncio.ensure_future(view.refresh(asked)) for _ in range(3)]
    await asked.answer(catalog(5))
    await asyncio.gather(*waiting)
    assert len(asked.questions) == 1


async def test_what_happens_while_the_catalog_is_asked_is_not_lost():
    """The answer was made when the log ended at 5: the batch at 5 is not in it, the one at 4 is."""
    view, asked = OpenTransactions(), Asked()
    waiting = asyncio.ensure_future(view.refresh(asked))
    await asyncio.sleep(0)
    view.wrote(batch(8), 4)
    end(view, 4, producer=9, first=2)
    view.wrote(batch(7), 5)
    end(view, 6, producer=10, first=3)
    await asked.answer(catalog(5, [(9, 2, 4)], p8=4, p10=3))
    await waiting
    assert view.last_stable(0, 7) == 4
    assert view.aborted(0, 9) == [Aborted(9, 2, 4), Aborted(10, 3, 6)]
    end(view, 7, producer=8)
    assert view.last_stable(0, 8) == 5


async def test_what_happened_before_the_catalog_answered_is_not_done_again():
    """We hear of the batch at 4 while we ask; the answer knows that somebody else has ended it at 5."""
    view, asked = OpenTransactions(), Asked()
    waiting = asyncio.ensure_future(view.refresh(asked))
    await asyncio.sleep(0)
    view.wrote(batch(7), 4)
    await asked.answer(catalog(6))
    await waiting
    assert view.last_stable(0, 6) == 6


async def test_what_the_catalog_has_told_already_changes_nothing():
    """The batch at 5 was ended at 6 by somebody else, and both are in the answer; then we hear of the batch."""
    view = await loaded(catalog(7, [(7, 5, 6)]))
    view.wrote(batch(7), 5)
    assert view.last_stable(0, 7) == 7
    end(view, 6, first=5)
    assert view.aborted(0, 9) == [Aborted(7, 5, 6)]
    view.wrote(batch(7), 7)
    assert view.last_stable(0, 8) == 7


async def test_a_batch_that_seems_to_go_on_with_a_transaction_counts_if_the_catalog_knows_of_its_end():
    """Ours says that 7 is open since 5. Somebody else has ended that, and the catalog says so (at 10); meanwhile
    the next transaction of 7 begins at 12, behind what the catalog has seen."""
    view, asked = await loaded(catalog(6, p7=5)), Asked()
    view.need(9)
    waiting = asyncio.ensure_future(view.refresh(asked))
    await asyncio.sleep(0)
    view.wrote(batch(7), 12)
    await asked.answer(catalog(10))
    await waiting
    assert view.last_stable(0, 13) == 12


async def test_an_aborted_transaction_that_was_read_a_moment_later_is_listed_once():
    view, asked = OpenTransactions(), Asked()
    waiting = asyncio.ensure_future(view.refresh(asked))
    await asyncio.sleep(0)
    end(view, 6, first=5)
    await asked.answer(catalog(6, [(7, 5, 6)], p7=5))
    await waiting
    assert view.aborted(0, 9) == [Aborted(7, 5, 6)]
    assert view.last_stable(0, 7) == 7


async def test_a_question_that_fails_fails_those_who_wait_and_is_asked_again_by_the_next():
    async def failing():
        raise CatalogUnavailable(reason="gone")

    view = OpenTransactions()
    found = await asyncio.gather(view.refresh(failing), view.refresh(failing), return_exceptions=True)
    assert [type(each) for each in found] == [CatalogUnavailable] * 2
    await view.refresh(answering(catalog(1)))
    assert not view.stale


async def test_a_question_goes_on_for_the_others_when_one_leaves():
    view, asked = OpenTransactions(), Asked()
    leaving, staying = (asyncio.ensure_future(view.refresh(asked)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asked.answer(catalog(1))
    await staying
    assert not view.stale


async def test_looking_again_asks_although_it_is_fresh_and_not_with_a_question_that_came_too_early():
    view, asked = await loaded(), Asked()
    early = asyncio.ensure_future(view.reload(asked))
    await asyncio.sleep(0)
    late = asyncio.ensure_future(view.reload(asked))
    await asyncio.sleep(0)
    await asked.answer(catalog(0))
    await early
    await asked.answer(catalog(0, p7=None))
    await late
    assert len(asked.questions) == 2
    assert view.includes(7, 0)


async def test_a_partition_is_part_of_a_transaction_of_that_epoch_alone():
    view = await loaded(catalog(3, p7=1))
    assert view.includes(7, 0)
    assert not view.includes(7, 1)
    assert not view.includes(8, 0)
    view.added(7, 1)
    assert view.includes(7, 1)
    assert view.last_stable(0, 3) == 1
    end(view, 3)
    assert not view.includes(7, 1)


async def test_a_transactional_batch_needs_an_open_transaction_and_a_plain_one_none():
    view = await loaded(catalog(3, p7=1, p8=None))
    for fine in (batch(7), batch(8), batch(8, transactional=False), batch(9, transactional=False)):
        view.check(fine)
    for refused in (batch(9), batch(7, epoch=1), batch(7, transactional=False)):
        with pytest.raises(InvalidTransactionState):
            view.check(refused)


async def test_the_aborted_that_touch_a_range_are_told_in_the_order_of_their_beginnings():
    view = await loaded(catalog(20, [(1, 5, 8), (2, 3, 10), (3, 12, 13)]))
    assert view.aborted(0, 20) == [Aborted(2, 3, 10), Aborted(1, 5, 8), Aborted(3, 12, 13)]
    assert view.aborted(8, 12) == [Aborted(2, 3, 10), Aborted(1, 5, 8)]
    assert view.aborted(9, 13) == [Aborted(2, 3, 10), Aborted(3, 12, 13)]
    assert view.aborted(14, 20) == []
    assert view.aborted(0, 4) == [Aborted(2, 3, 10)]


async def test_a_commit_and_an_abort_of_nothing_are_not_listed():
    view = await loaded()
    end(view, 3)
    view.ended(Markers(MarkerKind.ABORT, 7, 0, False, 0), PartitionMarker(WHERE, 4, 0, None))
    assert view.aborted(0, 9) == []


async def test_so_many_aborted_transactions_are_remembered_and_readers_of_older_ones_must_ask(monkeypatch):
    monkeypatch.setattr(module, "ABORTED_MAX", 2)
    view = await loaded(catalog(4, [(7, 0, 1)], aborted_from=0))
    end(view, 5, first=4)
    assert view.aborted(0, 9) == [Aborted(7, 0, 1), Aborted(7, 4, 5)]
    end(view, 7, first=6)
    assert view.aborted(1, 9) is None
    assert view.aborted(2, 9) == [Aborted(7, 4, 5), Aborted(7, 6, 7)]


async def test_what_the_catalog_did_not_tell_must_be_asked():
    view = await loaded(catalog(9, [(7, 4, 5)], aborted_from=5))
    assert view.aborted(4, 9) is None
    assert view.aborted(5, 9) == [Aborted(7, 4, 5)]
