"""The audit log: what it says, and that a client cannot flood it."""

import logging

import pytest

from millpond.model.errors import TopicNotAuthorized
from millpond.model.principals import Principal
from millpond.security import audit
from millpond.security.audit import AuditLog
from millpond.testing import SimulatedClock

ALICE = Principal("User", "alice")


@pytest.fixture
def clock():
    return SimulatedClock(0)


@pytest.fixture
def log(clock, caplog):
    caplog.set_level(logging.INFO, logger="millpond.security.audit")
    return AuditLog(clock)


def refusal(topic="orders"):
    return TopicNotAuthorized(principal=str(ALICE), operation="read", topic=topic)


def test_a_denial_is_logged_once_per_minute(log, clock, caplog):
    for _ in range(100):
        log.denied(ALICE, "192.0.2.1", refusal())
    assert [record.reason for record in caplog.records] == ["User:alice may not read topic 'orders'."]
    clock.advance(60_000)
    log.denied(ALICE, "192.0.2.1", refusal())
    assert len(caplog.records) == 2


def test_other_denials_are_logged_beside_it(log, caplog):
    for topic in ("a", "b", "a"):
        log.denied(ALICE, "192.0.2.1", refusal(topic))
    assert len(caplog.records) == 2


def test_a_client_that_invents_names_does_not_fill_the_log(log, clock, caplog):
    for number in range(audit.DENIALS_PER_MINUTE_MAX + 5):
        log.denied(ALICE, "192.0.2.1", refusal(f"t{number}"))
    assert len(caplog.records) == audit.DENIALS_PER_MINUTE_MAX
    log.denied(Principal("User", "bob"), "192.0.2.1", refusal("t"))
    assert len(caplog.records) == audit.DENIALS_PER_MINUTE_MAX + 1
    clock.advance(60_000)
    log.denied(ALICE, "192.0.2.1", refusal("another"))
    assert len(caplog.records) == audit.DENIALS_PER_MINUTE_MAX + 2


def test_failed_logins_do_not_fill_the_log(log, clock, caplog, monkeypatch):
    monkeypatch.setattr(audit, "FAILURES_PER_MINUTE_MAX", 3)
    for _ in range(10):
        log.authentication_failed(interface="kafka", client="192.0.2.1", method="PLAIN")
    assert len(caplog.records) == 3
    clock.advance(60_000)
    log.authentication_failed(interface="kafka", client="192.0.2.1", method="PLAIN")
    assert len(caplog.records) == 4


def test_the_number_of_events_that_were_left_out_is_recorded(clock, caplog, monkeypatch):
    caplog.set_level(logging.INFO, logger="millpond.security.audit")
    monkeypatch.setattr(audit, "FAILURES_PER_MINUTE_MAX", 3)
    found = []
    log = AuditLog(clock, recorder=found.append)

    def summaries():
        log.report_left_out()
        return [each.resource for each in found if each.event == "audit events left out"]

    for _ in range(10):
        log.authentication_failed(interface="kafka", client="192.0.2.1", method="PLAIN")
    assert summaries() == [], "once per minute"
    for _ in range(5):
        log.denied(ALICE, "192.0.2.1", refusal())
    clock.advance(60_000)
    assert summaries() == summaries() == ["7 failed logins, 4 denials"]
    assert (caplog.records[-1].failures, caplog.records[-1].denials) == (7, 4)
    clock.advance(60_000)
    log.authentication_failed(interface="kafka", client="192.0.2.1", method="PLAIN")
    log.denied(ALICE, "192.0.2.1", refusal())
    clock.advance(60_000)
    assert len(summaries()) == 1, "nothing was left out"


def test_logins_and_changes_name_who_and_what(log, caplog):
    log.authenticated(ALICE, interface="http", client="192.0.2.1", method="Basic")
    log.changed(ALICE, "192.0.2.1", "token created", "abc")
    login, change = caplog.records
    assert (login.principal, login.interface, login.method) == ("User:alice", "http", "Basic")
    assert (change.principal, change.change, change.subject) == ("User:alice", "token created", "abc")
