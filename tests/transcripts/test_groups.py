"""The group machine, by stories. See `group_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.group_stage import GroupStage
from tests.transcripts.transcript import play

STORIES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_group_behaves_as_in_the_story(path):
    play(path, GroupStage().perform)


def test_there_are_stories():
    assert len(STORIES) > 10
