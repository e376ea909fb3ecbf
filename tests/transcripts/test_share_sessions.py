"""Share sessions, by stories. See `share_session_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.share_session_stage import Connection, ShareSessionStage
from tests.transcripts.transcript import play

from millpond.frontends.kafka.share_sessions import EPOCH_MAX, ShareSessions
from millpond.queues import MemberName

STORIES = sorted((Path(__file__).parent / "share_sessions").glob("*.txt"))
RULES = {
    "epochs follow each other": "epochs",
    "a session is opened again": "replaced",
    "a session is closed": "closed",
    "partitions are added and forgotten": "partitions",
    "there are too many": "limits",
    "a connection is lost": "connections",
}
"""What a session does, and the story that tells it."""


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_share_sessions_behave_as_in_the_story(path):
    play(path, ShareSessionStage().perform)


def test_every_rule_has_its_story():
    assert set(RULES.values()) == {story.stem for story in STORIES}


def test_epochs_begin_again_after_the_highest():
    sessions, name, connection = ShareSessions(), MemberName("workers", "m1"), ShareSessionStage()
    sessions.fetch(name, 0, (), (), connection, acknowledges=False)
    sessions._sessions[name].epoch = EPOCH_MAX
    sessions.acknowledge(name, EPOCH_MAX)
    sessions.acknowledge(name, 1)


def test_a_lost_connection_costs_nothing_for_the_sessions_of_others():
    class Unscanned(dict):
        """Its entries are only looked up."""

        def __iter__(self):
            raise AssertionError("scanned")

        keys = values = items = __iter__

    sessions, first, second = ShareSessions(), Connection(), Connection()
    sessions._sessions = Unscanned()
    names = [MemberName("workers", f"m{number}") for number in range(4)]
    for name, connection in zip(names, (first, first, second, second), strict=True):
        sessions.fetch(name, 0, (), (), connection, acknowledges=False)
    sessions.fetch(names[0], 0, (), (), second, acknowledges=False)
    sessions.close(names[3])
    assert sessions.close_all_of(first) == [names[1]]
    assert sessions.close_all_of(second) == [names[2], names[0]]
    assert not sessions._of_connection
