"""Subscriptions at a real broker: made, consumed from, looked at and mended from the command line."""

import json
import signal
import time
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from millpond.cli.subscription import CONFIG_NAMES, parse_start
from millpond.model.subscriptions import SubscriptionConfig

WAIT = ("--wait", "30")
"""Where a count ends it."""


def lines(done):
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.lines]


def until(condition):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_subscriptions_life(millpond, topic):
    millpond.inside("produce", topic, given=b"a\nb\n")
    made = millpond.inside(
        *("subscription", "create", topic, "s", "--mode", "key_shared", "--ack-timeout", "2m", "--json")
    ).json
    assert (made["topic"], made["name"], made["config"]["mode"]) == (topic, "s", "key_shared")
    assert made["config"]["ack_timeout_ms"] == 120_000
    assert f"{topic}  s  " in millpond.inside("subscription", "list").out.decode()
    assert [each["name"] for each in millpond.inside("subscription", "list", topic, "--json").json] == ["s"]

    altered = millpond.inside("subscription", "alter", topic, "s", "--attempts", "2", "--json").json
    assert (altered["config"]["attempts_max"], altered["config"]["ack_timeout_ms"]) == (2, 120_000)
    assert millpond.inside("subscription", "alter", topic, "s").code == 2

    found = millpond.inside("subscription", "describe", topic, "s", "--json").json
    assert (found["backlog"], found["dead_letter_topic"]) == (2, f"{topic}.s.dead")
    assert millpond.inside("subscription", "describe", topic, "s").lines[0].endswith("2 messages not settled")

    assert millpond.inside("subscription", "delete", topic, "s").code == 1, "without --yes nothing is deleted"
    gone = millpond.inside("subscription", "delete", topic, "s", "--yes")
    assert gone.out.decode() == f"deleted subscription s of {topic}\n"
    assert millpond.inside("subscription", "list", topic, "--json").json == []


def test_what_a_broker_refuses_is_a_sentence(millpond, topic):
    millpond.inside("topic", "create", topic)
    millpond.inside("subscription", "create", topic, "s")
    for arguments, sentence in (
        (["create", topic, "s"], f"Topic '{topic}' already has a subscription 's'."),
        (["create", topic, "a b"], "the name 'a b'"),
        (["create", topic, "x", "--ack-timeout", "1ms"], "ack_timeout_ms is 1"),
        (["create", topic, "x", "--backoff", "soon"], "backoff_ms cannot be 'soon'"),
        (["create", "nowhere", "x"], "There is no topic 'nowhere'."),
        (["describe", topic, "nobody"], f"Topic '{topic}' has no subscription 'nobody'."),
        (["delete", topic, "nobody", "--yes"], "has no subscription 'nobody'"),
    ):
        done = millpond.inside("subscription", *arguments)
        assert (done.code, done.err.count("\n")) == (1, 1), done.err
        assert sentence in done.err


def test_what_is_printed_is_acknowledged_and_does_not_come_again(millpond, topic):
    millpond.inside("produce", topic, "--key-separator", ":", given=b"k:one\nk:two\nk:three\n")
    millpond.inside("subscription", "create", topic, "s")
    first = lines(millpond("consume", topic, "--subscription", "s", "--count", "2", *WAIT, "--json"))
    assert [(each["number"], each["key"], each["value"], each["retry_count"]) for each in first] == [
        (1, "k", "one", 0),
        (2, "k", "two", 0),
    ]
    rest = millpond("consume", topic, "--subscription", "s", "--show-key", "--count", "1", *WAIT)
    assert (rest.code, rest.lines) == (0, ["k:three"])
    assert millpond.inside("subscription", "describe", topic, "s", "--json").json["backlog"] == 0


def test_what_is_given_back_or_refused_comes_again(millpond, topic):
    millpond.inside("produce", topic, given=b"poison\n")
    millpond.inside(*("subscription", "create", topic, "s", "--attempts", "2", "--backoff", "0s", "--json"))
    take = ("consume", topic, "--subscription", "s", "--count", "1", *WAIT, "--json")
    assert [each["retry_count"] for each in lines(millpond(*take, "--answer", "none"))] == [0]
    assert [each["retry_count"] for each in lines(millpond(*take, "--answer", "nack"))] == [0]
    refused = millpond(*take, "--answer", "nack", "--reason", "not today")
    assert [each["retry_count"] for each in lines(refused)] == [1]
    dead = until(lambda: millpond.inside("consume", f"{topic}.s.dead").out)
    assert dead == b"poison\n"
    [letter] = lines(millpond.inside("consume", f"{topic}.s.dead", "--json"))
    headers = {each["name"]: each["value"] for each in letter["headers"]}
    assert headers["millpond-last-reason"] == "not today"
    redriven = millpond.inside("subscription", "redrive", topic, "s")
    assert redriven.out.decode() == f"sent 1 dead letter back to {topic}\n"
    assert [(each["number"], each["retry_count"]) for each in lines(millpond(*take))] == [(2, 0)]


def test_blocked_messages_are_named_and_let_go(millpond, topic):
    millpond.inside("produce", topic, "--key-separator", ":", given=b"k:poison\nk:behind\n")
    millpond.inside(
        *("subscription", "create", topic, "s", "--mode", "key_shared", "--on-exhausted", "block"),
        *("--attempts", "1"),
    )
    reason = ("--answer", "nack", "--reason", "it is poison")
    millpond("consume", topic, "--subscription", "s", "--count", "1", *WAIT, *reason)
    described = ("subscription", "describe", topic, "s")
    [failing] = millpond.inside(*described, "--json").json["partitions"][0]["failing"]
    assert failing == {
        "number": 1,
        "attempts": 1,
        "reasons": ["it is poison"],
        "why": "blocked",
        "until_ms": 0,
    }
    table = millpond.inside(*described).lines[-2:]
    assert [line.split() for line in table] == [
        ["PARTITION", "FAILING", "ATTEMPTS", "NOW", "UNTIL", "LAST", "REASON"],
        ["0", "1", "1", "blocked", "it", "is", "poison"],
    ]
    with millpond.started("consume", topic, "--subscription", "s", "--follow") as consumer:
        keys = until(lambda: millpond.inside(*described, "--json").json["partitions"][0]["keys"])
        assert [(each["number"], each["why"]) for each in keys] == [(1, "blocked")]
        assert "blocked" in millpond.inside(*described).out.decode()
        until(lambda: millpond.inside("subscription", "unblock", topic, "s", "--json").json["unblocked"] == 1)
        assert consumer.stdout.readline() == b"poison\n"
        assert consumer.stdout.readline() == b"behind\n"


def test_a_reset_begins_anew(millpond, topic):
    millpond.inside("produce", topic, given=b"a\nb\nc\n")
    millpond.inside("subscription", "create", topic, "s", "--from", "latest")
    assert millpond("consume", topic, "--subscription", "s", "--wait", "0.5").lines == []
    assert millpond.inside("subscription", "reset", topic, "s", "--to", "2").code == 1, "it would ask"
    done = millpond.inside("subscription", "reset", topic, "s", "--to", "2", "--yes")
    assert done.out.decode() == f"subscription s of {topic} was reset to 2\n"
    assert millpond("consume", topic, "--subscription", "s", "--count", "2", *WAIT).lines == ["b", "c"]


def test_ctrl_c_leaves_in_order(millpond, topic):
    millpond.inside("produce", topic, given=b"a\n")
    millpond.inside("subscription", "create", topic, "s")
    with millpond.started(
        "consume", topic, "--subscription", "s", "--follow", "--answer", "none"
    ) as consumer:
        assert consumer.stdout.readline() == b"a\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(30) == 130
        assert consumer.stderr.read() == b""
    again = lines(millpond("consume", topic, "--subscription", "s", "--count", "1", *WAIT, "--json"))
    assert [each["retry_count"] for each in again] == [0], "given back at once, and not charged"


def test_a_consumer_hears_that_there_is_no_such_subscription(millpond, topic):
    millpond.inside("topic", "create", topic)
    done = millpond("consume", topic, "--subscription", "nobody")
    assert (done.code, "has no subscription 'nobody'" in done.err) == (1, True)


def test_options_that_do_not_go_together(millpond, topic):
    for arguments in (
        ["--subscription", "s", "--group", "g"],
        ["--subscription", "s", "--from", "oldest"],
        ["--subscription", "s", "--partition", "0"],
        ["--answer", "nack"],
        ["--reason", "bad"],
        ["--consumer", "c"],
        ["--wait", "1"],
    ):
        done = millpond.inside("consume", topic, *arguments)
        assert (done.code, "--subscription" in done.err) == (2, True), done.err
    done = millpond.inside("consume", topic, "--subscription", "s", "--reason", "bad")
    assert (done.code, "--answer nack" in done.err) == (2, True), done.err


def test_a_config_is_shown_in_one_order_with_numbers_as_numbers(millpond, topic):
    millpond.inside("topic", "create", topic)
    millpond.inside("subscription", "create", topic, "s", "--attempts", "7", "--backoff", "0s")
    shown = millpond.inside("subscription", "describe", topic, "s", "--json").json["subscription"]["config"]
    assert list(shown) == [each.name for each in fields(SubscriptionConfig)]
    assert shown == SubscriptionConfig(attempts_max=7, backoff_ms=0).to_json()
    [listed] = millpond.inside("subscription", "list", topic, "--json").json
    assert list(listed["config"].items()) == list(shown.items())
    for _ in range(3):
        assert millpond.inside("subscription", "describe", topic, "s").lines[1] == (
            "ack_timeout_ms=30000  attempts_max=7  on_exhausted=dead_letter  backoff_ms=0  backoff_max_ms=300000  "
            "key_window=1  leases_max=2000"
        )


def test_every_value_of_the_config_has_an_option():
    assert list(CONFIG_NAMES.values()) == list(SubscriptionConfig().to_json())


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("newest", "latest"),
        ("17", 17),
        ("-10s", datetime.fromtimestamp(990, UTC)),
        ("1970-01-01T00:01:00Z", datetime.fromtimestamp(60, UTC)),
    ],
)
def test_where_to_begin(text, start):
    assert parse_start(text, 1000) == start


@pytest.mark.parametrize("text", ["", "-17", "soon", "0"])
def test_what_is_no_place(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_start(text, 1000)
