"""The queue machine, by stories. See `queue_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.queue_stage import QueueStage
from tests.transcripts.transcript import play

STORIES = sorted((Path(__file__).parent / "queues").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_queue_behaves_as_in_the_story(path):
    play(path, QueueStage().perform)


def test_there_are_stories():
    assert len(STORIES) > 10
