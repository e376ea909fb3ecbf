"""Messages in and out through real processes and a real broker."""

import json
import signal
import socket
import time

import pytest
from tests.ports import free_address
from tests.unit.cli.conftest import LONGEST_S, Millpond, at_a_terminal

from millpond.cli import consume as consume_module
from millpond.cli.temporary_broker import TemporaryBroker
from millpond.groups import JoinRequest, Protocol
from millpond.testing import Millpond as Pond
from millpond.testing.background import run_in_background

EVERY_BYTE = bytes(range(256))


@pytest.fixture
def closed_port():
    """A port that nobody listens on, and nobody gets while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# -- round trips ----------------------------------------------------------------------------------------------


def test_lines_come_back_as_they_went(millpond, topic):
    given = b"one\n\n  two \xff\x00 \r\nlast without an end"
    sent = millpond("produce", topic, given=given)
    assert sent.code == 0
    assert sent.err.startswith("stored 4 messages in ")
    assert millpond("consume", topic).out == given + b"\n"


def test_no_input_is_no_message(millpond, topic):
    assert millpond("produce", topic).err.startswith("stored 0 messages")


def test_a_whole_file_is_one_message_byte_for_byte(millpond, topic, tmp_path):
    content = EVERY_BYTE * 100
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(content + name.encode())
    files = [f"--file={tmp_path / name}" for name in ("a", "b")]
    assert millpond("produce", topic, "--input", "raw", *files).code == 0
    assert millpond("consume", topic, "--raw", "--count", "1").out == content + b"a"
    assert millpond("consume", topic, "--raw").out == content + b"a" + content + b"b"


def test_keys_and_headers(millpond, topic):
    millpond.inside("produce", topic, "--key-separator", ":", given=b"k:v:w\nno key\n:empty key\n")
    millpond.inside("produce", topic, "--key", "K", "--header", "h=1", "--header", "h=2=3", "--message", "m")
    assert millpond.inside("consume", topic, "--show-key").lines == ["k:v:w", "no key", ":empty key", "K:m"]
    assert millpond.inside("consume", topic, "--key-separator", "--").lines[0] == "k--v:w"
    assert millpond.inside("consume", topic, "--show-headers", "--from", "4").lines == ["h=1,h=2=3\tm"]


def test_json_can_be_piped_from_one_topic_to_another_without_loss(millpond, topic):
    messages = [
        {"value": "text", "key": {"base64": "/w=="}, "headers": [{"name": "h", "value": None}] * 2},
        {"value": None, "key": "tombstone"},
        {"value": "", "key": ""},
        {"value": "AAE=", "encoding": "base64", "timestamp_ms": 1_700_000_000_000},
        {"value": "ünïcode \u2028 \x00", "headers": {"one": "x"}},
    ]
    given = "\n".join(map(json.dumps, messages)).encode()
    for name in (topic, f"{topic}-copy"):
        millpond("topic", "create", name, "--config", "retention.ms=-1")
    assert millpond("produce", topic, "--input", "json", given=given).code == 0
    first = millpond("consume", topic, "--json")
    assert millpond("produce", f"{topic}-copy", "--input", "json", given=first.out).code == 0
    second = millpond("consume", f"{topic}-copy", "--json")
    assert second.out == first.out
    shown = [json.loads(line) for line in first.lines]
    assert shown[0]["key"] == {"base64": "/w=="}
    assert shown[0]["headers"] == [{"name": "h", "value": None}] * 2
    assert (shown[1]["value"], shown[2]["value"], shown[3]["value"]) == (None, "", "\x00\x01")
    assert shown[3]["timestamp_ms"] == 1_700_000_000_000
    assert [message["number"] for message in shown] == [1, 2, 3, 4, 5]


def test_many_lines_keep_their_order(millpond, topic, tmp_path):
    file = tmp_path / "numbers"
    file.write_text("".join(f"{number}\n" for number in range(100_000)))
    sent = millpond("produce", topic, "--file", str(file), "--compression", "lz4")
    assert sent.err.startswith("stored 100,000 messages")
    assert millpond("consume", topic).out == file.read_bytes()


def test_it_says_where_each_message_went(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "3")
    sent = millpond.inside("produce", topic, "--json", "--quiet", "--partition", "2", given=b"a\nb\n")
    assert [json.loads(line) for line in sent.lines] == [
        {"source": "line 1", "partition": 2, "offset": 0, "number": 1},
        {"source": "line 2", "partition": 2, "offset": 1, "number": 2},
    ]
    assert sent.err == ""
    assert millpond.inside("consume", topic, "--partition", "1").out == b""
    assert millpond.inside("consume", topic, "--partition", "2").out == b"a\nb\n"


# -- what is refused ------------------------------------------------------------------------------------------


def test_a_refused_message_is_named_and_the_rest_is_stored(millpond, topic):
    millpond("topic", "create", topic, "--config", "max.message.bytes=1000")
    sent = millpond("produce", topic, given=b"one\n" + b"x" * 2000 + b"\nthree\n")
    assert sent.code == 1
    assert "line 2 was refused: A batch of" in sent.err
    assert "stored 2 messages" in sent.err
    assert "refused 1 message" in sent.err
    assert millpond("consume", topic).lines == ["one", "three"]


def test_an_invalid_topic_name_stops_a_writer_before_it_reads_its_input(millpond):
    with millpond.started("produce", "no topic") as writer:  # whose input stays open, and gives nothing
        assert writer.wait(LONGEST_S) == 1
        assert writer.stderr.read().startswith(
            b"millpond: Topic name 'no topic' is not valid: use 1 to 249 of"
        )


def test_a_topic_that_the_broker_refuses_stops_a_writer_at_the_first_line(topic):
    with Pond({"auto_create_topics": False}) as pond, Millpond(pond.grpc).started("produce", topic) as writer:
        writer.stdin.write(b"one\n")
        assert writer.wait(LONGEST_S) == 1
        assert b"line 1 was refused" in writer.stderr.readline()


def test_json_that_is_no_message_is_refused_by_line(millpond, topic):
    given = b'{"value": "good"}\n{"valeu": "typo"}\nnot json\n{"value": {"base64": "?"}}\n{"value": "last"}'
    sent = millpond.inside("produce", topic, "--input", "json", "--json", given=given)
    assert sent.code == 1
    for line in (2, 3, 4):
        assert f"line {line} was refused" in sent.err
    assert [json.loads(line).get("error") for line in sent.lines] == [None, *["InvalidRecord"] * 3, None]
    assert millpond.inside("consume", topic).lines == ["good", "last"]


def test_of_very_many_refusals_the_first_are_shown(millpond, topic):
    sent = millpond.inside("produce", topic, "--input", "json", given=b"nothing\n" * 100)
    assert sent.err.count("was refused") == 10
    assert "refused 100 messages" in sent.err


@pytest.mark.parametrize("options", [["--partition", "7"], ["--input", "json"]])
def test_a_refused_message_creates_no_topic(millpond, options):
    given = b'{"value": "x", "timestamp_ms": 1125899906842624}\n' if "json" in options else b"x\n"
    sent = millpond.inside("produce", "never-created", *options, given=given)
    assert sent.code == 1
    assert "stored 0 messages" in sent.err
    assert "never-created" not in millpond.inside("topic", "list").out.decode()


def test_a_partition_that_is_not_there_ends_it(millpond, topic):
    sent = millpond.inside("produce", topic, "--partition", "7", given=b"a\nb\n")
    assert sent.code == 1
    assert "has no partition 7" in sent.err
    assert "the rest was not sent" in sent.err
    assert "stored 0 messages" in sent.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "t", "--file", "x", "--message", "m"],
        ["produce", "t", "--key", "k", "--key-separator", ":"],
        ["produce", "t", "--input", "json", "--key", "k"],
        ["produce", "t", "--header", "nameless"],
        ["consume", "t", "--raw", "--json"],
        ["consume", "t", "--raw", "--show-key"],
        ["consume", "t", "--group", "g", "--position-file", "p"],
        ["consume", "t", "--from", "yesterday"],
        ["consume", "t", "--address", "nowhere"],
    ],
)
def test_options_that_do_not_go_together_are_a_wrong_call(arguments):
    done = Millpond("127.0.0.1:1").inside(*arguments)
    assert done.code == 2
    assert "Usage: millpond" in done.err


def test_a_file_that_is_not_there(millpond, topic):
    done = millpond.inside("produce", topic, "--file", "/nowhere/at/all")
    assert (done.code, done.err) == (
        1,
        "millpond: /nowhere/at/all cannot be read: No such file or directory.\n",
    )


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["consume", "t"], ["produce", "t"], ["group", "list"]]
)
def test_a_broker_that_is_not_there(command, closed_port):
    done = Millpond(f"127.0.0.1:{closed_port}")(*command)
    assert done.code == 1
    assert done.err.startswith(
        f"millpond: No broker responds at 127.0.0.1:{closed_port}: Connection refused."
    )
    assert "millpond serve" in done.err
    assert done.err.count("\n") == 1


# -- where to begin and to end --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers(millpond):
    """Ten messages a minute apart, from 2023-11-14T22:14:20Z on."""
    millpond("topic", "create", "numbers", "--config", "retention.ms=-1")
    given = [{"value": str(n), "timestamp_ms": 1_700_000_000_000 + n * 60_000} for n in range(1, 11)]
    millpond("produce", "numbers", "--input", "json", given="\n".join(map(json.dumps, given)).encode())
    return "numbers"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("oldest", range(1, 11)),
        ("newest", []),
        ("4", range(4, 11)),
        ("400", []),
        ("-3", [8, 9, 10]),
        ("-30", range(1, 11)),
        ("2023-11-14T22:20:20Z", range(7, 11)),
        ("-1h", []),
    ],
)
def test_where_to_begin(millpond, numbers, place, expected):
    assert millpond.inside("consume", numbers, "--from", place).lines == [str(number) for number in expected]


def test_a_count_ends_it(millpond, numbers):
    assert millpond.inside("consume", numbers, "--count", "3").lines == ["1", "2", "3"]


def test_positions_are_kept_in_a_file_or_under_a_name(millpond, numbers, tmp_path):
    for kept in (["--group", "readers"], ["--position-file", str(tmp_path / "positions")]):
        assert millpond.inside("consume", numbers, "--count", "4", "--from", "3", *kept).lines == list("3456")
        assert millpond.inside("consume", numbers, "--count", "1", *kept).lines == ["7"]
        assert millpond.inside("consume", numbers, *kept).lines == ["8", "9", "10"]
        assert millpond.inside("consume", numbers, *kept).lines == []


def test_an_unknown_topic_is_an_error_with_a_way_on(millpond):
    done = millpond.inside("consume", "nobody-wrote-this")
    assert done.code == 1
    assert "There is no topic 'nobody-wrote-this'" in done.err
    assert "millpond topic list" in done.err


# -- follow, Ctrl-C, pipes ------------------------------------------------------------------------------------


def test_following_begins_before_the_topic_exists(millpond, topic):
    with millpond.started("consume", topic, "--follow", "--from", "newest") as reader:
        assert b"waiting for topic" in reader.stderr.readline()
        millpond("produce", topic, given=b"first\n")
        assert reader.stdout.readline() == b"first\n"
        millpond("produce", topic, given=b"second\n")
        assert reader.stdout.readline() == b"second\n"


def test_following_goes_on_when_a_broker_that_was_killed_is_back(tmp_path, topic):
    with TemporaryBroker(tmp_path, {"grpc": free_address()}) as broker:
        own = Millpond(broker.listeners["grpc"])
        own.inside("produce", topic, "--message", "before")
        with own.started("consume", topic, "--follow", "--timeout", "1") as reader:
            assert reader.stdout.readline() == b"before\n"
            broker.kill()
            assert b"waiting for the broker" in reader.stderr.readline()
            broker.start()
            own.inside("produce", topic, "--message", "after")
            assert reader.stdout.readline() == b"after\n"


def test_ctrl_c_ends_a_reader_quietly_and_keeps_its_position(millpond, topic):
    millpond("produce", topic, given=b"a\nb\n")
    with millpond.started("consume", topic, "--follow", "--group", topic) as reader:
        assert reader.stdout.readline() + reader.stdout.readline() == b"a\nb\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == 130
        assert reader.stderr.read() == b""
    [position] = millpond("group", "describe", topic, "--json").json["positions"]
    assert (position["read_from"], position["lag"]) == (3, 0)


def test_ctrl_c_ends_a_writer_with_what_was_read(millpond, topic):
    with (
        millpond.started("produce", topic, "--json") as writer,
        millpond.started("consume", topic, "-f") as reader,
    ):
        assert b"waiting" in reader.stderr.readline()
        writer.stdin.write(b"one\ntwo\nhalf")
        assert reader.stdout.readline() + reader.stdout.readline() == b"one\ntwo\n"
        writer.send_signal(signal.SIGINT)
        assert writer.wait(20) == 130
        assert b"interrupted: stored 2 messages" in writer.stderr.read()
        assert len(writer.stdout.read().splitlines()) == 2
    assert millpond("consume", topic).lines == ["one", "two"]


def test_a_reader_that_has_seen_enough_is_no_error(millpond, topic):
    millpond("produce", topic, given=b"a long line of text\n" * 50_000)
    with millpond.started("consume", topic) as reader:
        assert reader.stdout.readline() == b"a long line of text\n"
        reader.stdout.close()
        assert reader.wait(20) == 0
        assert reader.stderr.read() == b""


def test_a_silent_reader_notices_that_nobody_listens(millpond, topic):
    millpond("produce", topic, given=b"a\n")
    with millpond.started("consume", topic, "--follow") as reader:
        assert reader.stdout.readline() == b"a\n"
        reader.stdout.close()
        assert reader.wait(20) == 0


def test_output_that_cannot_be_written_is_an_error(millpond, topic):
    millpond("produce", topic, given=b"a\n")
    with (
        open("/dev/full", "wb") as full,
        millpond.started("consume", topic, "--group", topic, stdout=full) as reader,
    ):
        assert reader.wait(20) == 1
        assert reader.stderr.read() == b"millpond: The output: No space left on device.\n"
    assert millpond("consume", topic, "--group", topic).lines == ["a"], "its position was kept all the same"


def test_whoever_types_is_answered_line_by_line(millpond, topic):
    with at_a_terminal("produce", topic, "--address", millpond.address, "--json") as terminal:
        for number in (1, 2):
            terminal.stdin.write(b"typed\n")
            while b'"number": %d' % number not in (line := terminal.stdout.readline()):
                assert line, "it ended"
        terminal.stdin.write(b"\x04")
        while b"stored 2 messages" not in (line := terminal.stdout.readline()):
            assert line, "it ended"
        terminal.stdin.close()
        assert terminal.wait(20) == 0


def test_progress_is_shown_to_people_only(millpond, topic, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"line\n" * 1000)
    with at_a_terminal("produce", topic, "--address", millpond.address, "--file", str(file)) as terminal:
        shown = b"".join(iter(lambda: terminal.stdout.read(1000), b""))
        terminal.stdin.close()
        assert terminal.wait(20) == 0
    assert b"100%" in shown
    assert b"stored 1,000 messages" in shown
    assert "%" not in millpond("produce", topic, "--file", str(file)).err


# -- in a group -----------------------------------------------------------------------------------------------


def test_two_readers_of_a_group_share_the_partitions(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "2")
    read = ("consume", topic, "--group", topic, "--follow")
    with millpond.started(*read) as first, millpond.started(*read) as second:
        shares = wait_for_shares(millpond, topic, 2)
        assert sorted(share[topic] for share in shares.values()) == [[0], [1]]
        by_process = {int(member.split("-")[-6]): share[topic] for member, share in shares.items()}
        for partition in ("0", "1"):
            millpond.inside("produce", topic, "--partition", partition, given=b"of %s\n" % partition.encode())
        for reader in (first, second):
            [partition] = by_process[reader.pid]
            assert reader.stdout.readline() == b"of %d\n" % partition
        first.send_signal(signal.SIGINT)
        assert first.wait(LONGEST_S) == 130
        [left] = wait_for_shares(millpond, topic, 1).values()
        assert left == {topic: [0, 1]}
        millpond.inside("produce", topic, "--partition", str(by_process[first.pid][0]), given=b"taken over\n")
        assert second.stdout.readline() == b"taken over\n"


def wait_for_shares(millpond, group, count):
    """The partitions of each member, when there are so many members and all of them have some."""
    give_up = time.monotonic() + LONGEST_S
    while time.monotonic() < give_up:
        done = millpond.inside("group", "describe", group, "--json")
        members = done.json["members"] if done.code == 0 else []
        shares = {each["id"]: each["assigned"] for each in members}
        if len(shares) == count and all(shares.values()) and done.json["state"] == "Stable":
            return shares
    raise AssertionError(f"not shared by {count} members")


def test_a_reader_of_a_group_ends_at_the_end_of_its_partitions(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "2")
    read = ("consume", topic, "--group", topic)
    with millpond.started(*read, "--follow") as first:
        wait_for_shares(millpond, topic, 1)
        assert millpond.inside(*read).code == 0, "it waits for its share, reads it, and leaves"
        first.send_signal(signal.SIGINT)
        assert first.wait(LONGEST_S) == 130
    for partition in ("0", "1"):
        millpond.inside("produce", topic, "--partition", partition, given=b"x\n")
    assert millpond.inside(*read).lines == ["x", "x"]
    assert millpond.inside("group", "describe", topic, "--json").json["lag"] == 0


def test_a_reader_without_a_share_says_who_has_all_partitions(millpond, topic, monkeypatch):
    monkeypatch.setattr(consume_module, "SHARE_WAIT_S", 0.0)
    millpond.inside("produce", topic, given=b"one\n")
    read = ("consume", topic, "--group", topic)
    with millpond.started(*read, "--follow") as first:
        assert first.stdout.readline() == b"one\n"
        second = millpond.inside(*read)
        assert (second.code, second.out) == (0, b"")
        assert second.err == f"the other members of group '{topic}' have all partitions\n"
        first.send_signal(signal.SIGINT)
        assert first.wait(LONGEST_S) == 130


def test_readers_of_chosen_partitions_are_no_members(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "2")
    millpond.inside("produce", topic, "--partition", "0", given=b"zero\n")
    millpond.inside("produce", topic, "--partition", "1", given=b"one\n")
    read = ("consume", topic, "--group", topic)
    with millpond.started(*read, "--partition", "0", "--follow") as first:
        assert first.stdout.readline() == b"zero\n"
        assert millpond.inside(*read, "--partition", "1").lines == ["one"]
        first.send_signal(signal.SIGINT)
        assert first.wait(LONGEST_S) == 130
    with millpond.started(*read, "--follow"):
        wait_for_shares(millpond, topic, 1)
        refused = millpond.inside(*read, "--partition", "1")
        assert (refused.code, refused.out) == (1, b"")
        assert f"Group '{topic}' is in use: it has members, which share its partitions" in refused.err
        assert f"`millpond group describe {topic}`" in refused.err


def test_the_partitions_of_a_reader_that_was_killed_are_read_by_the_next_one(topic):
    with Pond() as pond:
        millpond = Millpond(pond.grpc)
        pond.producer(topic).send(b"one")
        with millpond.started("consume", topic, "--group", "g", "--follow") as first:
            assert first.stdout.readline() == b"one\n"
            wait_for_shares(millpond, "g", 1)
            first.kill()
            first.wait(LONGEST_S)
        pond.producer(topic).send(b"two")
        pond.advance("45s")
        assert "two" in millpond("consume", topic, "--group", "g").lines


def test_a_reader_that_was_paused_joins_again(topic):
    with Pond() as pond:
        millpond = Millpond(pond.grpc)
        pond.producer(topic).send(b"one")
        read = ("consume", topic, "--group", "g", "--follow")
        with millpond.started(*read) as first:
            assert first.stdout.readline() == b"one\n"
            first.send_signal(signal.SIGSTOP)
            pond.advance("45s")
            with millpond.started(*read) as second:
                wait_for_shares(millpond, "g", 1)
                pond.producer(topic).send(b"two")
                assert second.stdout.readline() in (b"one\n", b"two\n")
                first.send_signal(signal.SIGCONT)
                wait_for_members(millpond, "g", 2)
                assert first.poll() is None


def wait_for_members(millpond, group, count):
    give_up = time.monotonic() + LONGEST_S
    while len(millpond.inside("group", "describe", group, "--json").json["members"]) != count:
        assert time.monotonic() < give_up


def test_a_reader_outlives_a_restart_of_the_broker_and_keeps_its_group(topic):
    with Pond() as pond:
        millpond = Millpond(pond.grpc)
        pond.producer(topic).send(b"one")
        with millpond.started("consume", topic, "--group", "g", "--follow") as first:
            assert first.stdout.readline() == b"one\n"
            pond.restart()
            pond.producer(topic).send(b"two")
            assert first.stdout.readline() == b"two\n"


def test_a_group_of_kafka_consumers_and_its_type_are_described(topic):
    with Pond() as pond:
        pond.producer(topic).send(b"one")
        protocols = [Protocol("range", b"")]
        join = JoinRequest("", "c", "h", 60_000, 60_000, "consumer", protocols, require_known_id=False)
        run_in_background(pond.broker.groups.join("g", join))
        millpond = Millpond(pond.grpc)
        found = millpond.inside("group", "describe", "g", "--json").json
        assert (found["type"], found["epoch"], len(found["members"])) == ("classic", 1, 1)
        lines = millpond.inside("group", "describe", "g").lines
        assert lines[1] == "type classic, epoch 1"
