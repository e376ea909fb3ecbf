"""The machine of share groups, by stories. See `share_group_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.share_group_stage import ShareGroupStage
from tests.transcripts.transcript import play

STORIES = sorted((Path(__file__).parent / "share_groups").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_share_group_behaves_as_in_the_story(path):
    play(path, ShareGroupStage().perform)


def test_there_are_stories_of_share_groups():
    assert len(STORIES) > 3
