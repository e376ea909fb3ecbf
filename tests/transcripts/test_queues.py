"""The queue machine, by stories. See `queue_stage` for the commands."""

from pathlib import Path

import pytest
from tests.transcripts.queue_stage import QueueStage
from tests.transcripts.transcript import play

FOLDER = Path(__file__).parent / "queues"
STORIES = sorted(FOLDER.glob("*.txt"))
TRANSITIONS = {
    "not seen to ready": "acknowledged",
    "ready to leased": "acknowledged",
    "leased to settling to settled, by an ack": "acknowledged",
    "leased to delayed, by a nack": "refused",
    "leased to delayed, by its deadline": "ran_out",
    "leased to delayed, by an abrupt leave": "broken_off",
    "delayed to ready": "refused",
    "leased to settling as dead": "refused",
    "leased to settling as dropped": "refused_and_dropped",
    "leased to blocked": "refused_and_blocked",
    "leased to ready, by a graceful leave": "left",
    "leased to ready, by a revoke": "revoked",
    "leased to ready, never written": "undelivered",
    "leased to ready, by a new owner": "taken_over",
    "delayed to settling, by a late ack": "late_acknowledgement",
    "ready to settling, by a late ack": "late_but_ready",
    "settling is exclusive": "settling_is_exclusive",
    "any to settled, void": "void",
    "a former owner changes nothing": "fenced",
}
"""What can become of a message, and the story that tells it."""


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_queue_behaves_as_in_the_story(path):
    play(path, QueueStage().perform)


def test_every_transition_has_its_story():
    assert set(TRANSITIONS.values()) <= {story.stem for story in STORIES}
