"""A commit of which nobody knows whether it is there: what it would refer to stays, since it may come back."""

import pytest

from millpond.model.errors import CatalogFailed, OutcomeUnknown
from millpond.records import Record, build_batch

UNCERTAIN = [OutcomeUnknown, CatalogFailed]
EAGER = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def lose_commits(kept, error, monkeypatch):
    """Each is there, but whoever waits for it hears otherwise: the disk refused to say that it is safe."""
    write = kept.log.upkeep.write

    async def committed_for_all_anybody_knows(operation, *, own_commit=False):
        answer = await write(operation, own_commit=own_commit)
        if own_commit:
            raise error(reason="fsync")
        return answer

    monkeypatch.setattr(kept.log.upkeep, "write", committed_for_all_anybody_knows)


def everything_referred_to(kept):
    return {key for (key,) in kept.rows("SELECT key FROM objects WHERE kind = 'segment'")}


@pytest.mark.parametrize("error", UNCERTAIN)
async def test_a_merged_segment_stays(start, tmp_path, monkeypatch, error):
    kept = await start(tmp_path, inline_bytes_max=0)
    for number in range(40):
        await kept.append(b"%d" % number)
    lose_commits(kept, error, monkeypatch)
    with pytest.raises(error):
        await kept.upkeep.merging.run_once()
    assert everything_referred_to(kept)
    assert everything_referred_to(kept) <= set(kept.objects())


@pytest.mark.parametrize("error", UNCERTAIN)
async def test_a_compacted_segment_stays(start, tmp_path, monkeypatch, error):
    kept = await start(tmp_path, topic=EAGER, inline_bytes_max=0)
    for number in range(4):
        batch = build_batch([Record(b"%d" % number, b"k", timestamp=kept.clock.now_ms())])
        await kept.log.append(kept.topic_partition(), batch)
    lose_commits(kept, error, monkeypatch)
    with pytest.raises(error):
        await kept.upkeep.compaction.run_once()
    assert everything_referred_to(kept)
    assert everything_referred_to(kept) <= set(kept.objects())
