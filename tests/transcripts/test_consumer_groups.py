"""The machine of consumer groups, by stories. See `consumer_group_stage` and `migration_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.migration_stage import MigrationStage
from tests.transcripts.transcript import play

STORIES = sorted((Path(__file__).parent / "consumer_groups").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_consumer_group_behaves_as_in_the_story(path):
    play(path, MigrationStage().perform)


def test_there_are_stories_of_consumer_groups():
    assert len(STORIES) > 3
