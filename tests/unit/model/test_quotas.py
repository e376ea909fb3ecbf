"""Which quotas are valid, and how their entities are stored and described."""

import math
import sys

import pytest
from tests.each import for_each

from millpond.model.errors import InvalidInput
from millpond.model.ids import AUDIT_TOPIC
from millpond.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    EVERY_NAME,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    STORED_BYTES,
    QuotaEntity,
    check_quota,
    covers,
)

ALICE, ADDRESS = QuotaEntity("alice", None), QuotaEntity(None, None, "192.0.2.1")

VALID = (
    (ALICE, {PRODUCER_BYTE_RATE: 1}),
    (ALICE, {PRODUCER_BYTE_RATE: 1e12, REQUEST_PERCENTAGE: 0.5, CONTROLLER_MUTATION_RATE: 0.1}),
    (ALICE, {PRODUCER_BYTE_RATE: None}),
    (ALICE, {CONSUMER_BYTE_RATE: sys.float_info.max}),
    (QuotaEntity(EVERY_NAME, EVERY_NAME), {REQUEST_PERCENTAGE: 250}),
    (ADDRESS, {CONNECTION_CREATION_RATE: 5}),
    (QuotaEntity(None, None, EVERY_NAME), {CONNECTION_CREATION_RATE: 5}),
    (QuotaEntity(None, None, "fe80::1"), {CONNECTION_CREATION_RATE: 5}),
    *((QuotaEntity(None, None, topic=name), {STORED_BYTES: 5}) for name in ("orders", "orders-*", "*")),
    (QuotaEntity(None, None, topic=AUDIT_TOPIC), {STORED_BYTES: None}),
)
INVALID = (
    (ALICE, {"bytes": 1}, "not a quota of user 'alice'"),
    (ALICE, {CONNECTION_CREATION_RATE: 1}, "not a quota of user"),
    (ADDRESS, {PRODUCER_BYTE_RATE: 1}, "not a quota of address"),
    (ALICE, {PRODUCER_BYTE_RATE: 0}, "above 0"),
    (ALICE, {PRODUCER_BYTE_RATE: -1}, "above 0"),
    (ALICE, {REQUEST_PERCENTAGE: math.nan}, "above 0"),
    (ALICE, {REQUEST_PERCENTAGE: math.inf}, "above 0"),
    (ALICE, {PRODUCER_BYTE_RATE: 1.5}, "whole number"),
    (ADDRESS, {CONNECTION_CREATION_RATE: 1.5}, "whole number"),
    (QuotaEntity(None, None), {PRODUCER_BYTE_RATE: 1}, "needs a user"),
    (QuotaEntity("alice", None, "192.0.2.1"), {CONNECTION_CREATION_RATE: 1}, "no user"),
    (QuotaEntity(None, None, "somewhere"), {CONNECTION_CREATION_RATE: 1}, "not an IP address"),
    (QuotaEntity("x" * 256, None), {PRODUCER_BYTE_RATE: 1}, "at most 255"),
    (QuotaEntity("alice", None, topic="orders"), {STORED_BYTES: 1}, "no user"),
    (QuotaEntity(None, None, topic=""), {STORED_BYTES: 1}, "not valid"),
    (QuotaEntity(None, None, topic="a*b"), {STORED_BYTES: 1}, "not valid"),
    (QuotaEntity(None, None, topic="orders"), {PRODUCER_BYTE_RATE: 1}, "not a quota of topic"),
    (QuotaEntity(None, None, topic="orders"), {STORED_BYTES: 1.5}, "whole number"),
    (QuotaEntity(None, None, topic=AUDIT_TOPIC), {STORED_BYTES: 1}, "audit_retention"),
)


@for_each("case", VALID)
def test_a_valid_quota_is_accepted(case):
    check_quota(*case)


@for_each("case", INVALID)
def test_an_invalid_quota_is_refused(case):
    entity, changes, reason = case
    with pytest.raises(InvalidInput, match=reason):
        check_quota(entity, changes)


@for_each("entity", (ALICE, ADDRESS, QuotaEntity(EVERY_NAME, "app"), QuotaEntity(None, EVERY_NAME)))
def test_an_entity_is_read_as_it_was_stored(entity):
    assert QuotaEntity.from_text(entity.as_text()) == entity


def test_a_pattern_covers_a_topic_or_a_prefix():
    assert covers("orders", "orders")
    assert not covers("orders", "orders-eu")
    assert covers("orders-*", "orders-eu")
    assert not covers("orders-*", "orders")
    assert covers("*", "anything")


def test_an_entity_is_described():
    assert str(QuotaEntity("alice", EVERY_NAME)) == "user 'alice', every client id"
    assert str(QuotaEntity(None, None, EVERY_NAME)) == "every address"
