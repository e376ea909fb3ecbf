"""Every error of the tree has a status, a code and a body."""

import logging

import pytest
from tests.each import for_each

from millpond.frontends.web.errors import HttpError, code_of, owner_of, problem_of, refusal_of, status_of
from millpond.model import errors
from millpond.model.errors import MillpondError


def leaves():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MillpondError)
    ]
    return [kind for kind in kinds if not kind.__subclasses__()]


OUR_FAULT = (errors.Defect, errors.Damaged, errors.CannotStart, errors.ObjectMissing)


@for_each("kind", leaves())
def test_every_error_has_a_status_that_says_whose_fault_it_is_and_whether_to_retry(kind):
    status = status_of(kind())
    if issubclass(kind, OUR_FAULT):
        assert status == 500
    elif kind.retriable:
        assert status in (409, 429, 503)
    elif issubclass(kind, errors.ObjectExists):
        assert status == 503
    else:
        assert 400 <= status < 500


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (errors.InvalidTopicName, 400, "InvalidTopicName"),
        (errors.UnknownTopic, 404, "UnknownTopic"),
        (errors.UnknownPartition, 404, "UnknownPartition"),
        (errors.TopicExists, 409, "TopicAlreadyExistsException"),
        (errors.GroupNotEmpty, 409, "GroupNotEmpty"),
        (errors.RecordTooLarge, 413, "RecordTooLarge"),
        (errors.OffsetOutOfRange, 416, "OffsetOutOfRange"),
        (errors.Overloaded, 429, "Overloaded"),
        (errors.Stopping, 503, "Stopping"),
        (errors.StoreFull, 503, "StoreFull"),
        (errors.NotOwner, 503, "NotOwner"),
        (errors.Defect, 500, "Defect"),
    ],
)
def test_the_statuses_that_clients_know(kind, status, code):
    assert (status_of(kind()), code_of(kind())) == (status, code)


def test_facts_become_details_and_numbers_stay_numbers():
    problem = problem_of(refusal_of(errors.OffsetOutOfRange(offset=9, log_start=3, end_offset=5)))
    assert problem.details == {"offset": 9, "log_start": 3, "end_offset": 5}
    assert "3 to 5" in problem.message


def test_a_long_name_comes_back_shortened():
    problem = problem_of(refusal_of(errors.UnknownTopic(topic="x" * 100_000)))
    assert len(problem.details["topic"]) < 1_000
    assert len(problem.message) < 1_000


@pytest.mark.parametrize("error", [errors.Defect(reason="the secret"), ValueError("the secret")])
def test_what_nobody_foresaw_is_logged_and_not_told(error, caplog):
    with caplog.at_level(logging.ERROR):
        refusal = refusal_of(error, what="GET /")
    assert (refusal.status, refusal.code) == (500, "Defect")
    assert "the secret" not in str(refusal)
    assert "the secret" in caplog.text


def test_a_refusal_of_this_interface_stays_what_it_is():
    refused = HttpError(415, "UnsupportedContentType", "No.")
    assert refusal_of(refused) is refused


def test_the_owner_of_a_partition_is_known_only_from_its_facts():
    assert owner_of(errors.NotOwner(owner_http="there:8000")) == "there:8000"
    assert owner_of(errors.NotCoordinator(group="g", owner_http="there:8000")) == "there:8000"
    assert owner_of(errors.NotOwner()) is None
    assert owner_of(errors.UnknownTopic(topic="t")) is None
