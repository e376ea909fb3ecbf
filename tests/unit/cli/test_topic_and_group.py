"""Topics and groups at a real broker, and what completes in a shell."""

import struct
import subprocess

from tests.unit.cli.conftest import Millpond, at_a_terminal

from millpond.catalog.groups import GroupOffset
from millpond.groups import CommitSender, JoinRequest, Protocol, SyncRequest
from millpond.model.ids import TopicPartition
from millpond.testing import Millpond as Pond
from millpond.testing.background import run_in_background


def test_a_topics_life(millpond, topic):
    made = millpond.inside(
        "topic", "create", topic, "--partitions", "2", "--config", "retention.ms=60000", "--json"
    ).json
    assert (made["partitions"], made["configs"]) == (2, {"retention.ms": "60000"})
    millpond.inside("produce", topic, "--partition", "1", given=b"a\nb\n")
    assert topic in [each["name"] for each in millpond.inside("topic", "list", "--json").json]
    assert f"{topic}  " in millpond.inside("topic", "list").out.decode()

    found = millpond.inside("topic", "describe", topic, "--json").json
    assert [(each["oldest"], each["next"], each["messages"]) for each in found["partitions"]] == [
        (1, 1, 0),
        (1, 3, 2),
    ]
    assert found["configs"] == {"retention.ms": {"value": "60000", "source": "topic"}}
    everything = millpond.inside("topic", "describe", topic, "--all", "--json").json["configs"]
    assert everything["cleanup.policy"] == {"value": "delete", "source": "default"}

    changed = millpond.inside(
        "topic", "alter", topic, "--partitions", "3", "--reset", "retention.ms", "--json"
    ).json
    assert (changed["partitions"], changed["configs"]) == (3, {})
    gone = millpond.inside("topic", "delete", topic, "--yes")
    assert gone.out.decode() == f"deleted topic {topic} with 2 messages\n"
    assert topic not in [each["name"] for each in millpond.inside("topic", "list", "--json").json]


def test_a_description_for_people(millpond, topic):
    millpond.inside("produce", topic, given=b"a\nb\n")
    text = millpond.inside("topic", "describe", topic).lines
    assert text[0].startswith(f"{topic}  2 messages, ")
    assert text[3].split() == ["PARTITION", "OLDEST", "NEXT", "MESSAGES", "SIZE", "OWNER"]
    assert text[4].split()[:4] == ["0", "1", "3", "2"]
    assert len(text) == 5, "configs that have their defaults are not shown"


def test_without_a_terminal_nothing_is_deleted_unless_it_is_meant(millpond, topic):
    millpond.inside("topic", "create", topic)
    done = millpond.inside("topic", "delete", topic, given=b"y\n")
    assert done.code == 1
    assert "--yes" in done.err
    assert millpond.inside("topic", "describe", topic).code == 0


def test_at_a_terminal_it_asks(millpond, topic):
    millpond.inside("topic", "create", topic)
    for answer, exit_code in ((b"n\n", 1), (b"y\n", 0)):
        with at_a_terminal("topic", "delete", topic, "--address", millpond.address) as terminal:
            shown = b""
            while b"[y/N]" not in shown:
                piece = terminal.stdout.read(100)
                assert piece, shown
                shown += piece
            terminal.stdin.write(answer)
            while terminal.stdout.read(1000):
                pass
            terminal.stdin.close()
            assert terminal.wait(20) == exit_code
    assert millpond.inside("topic", "describe", topic).code == 1


def test_what_a_broker_refuses_is_a_sentence(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "2")
    for arguments, sentence in (
        (["create", topic], f"Topic '{topic}' already exists."),
        (["create", "a b"], "is not valid"),
        (["create", "x", "--config", "retention.ms=soon"], "'retention.ms' cannot be 'soon'"),
        (["alter", topic, "--partitions", "1"], "partitions cannot be taken away"),
        (["describe", "nowhere"], "There is no topic 'nowhere'. `millpond topic list`"),
        (["delete", "nowhere", "--yes"], "There is no topic 'nowhere'"),
    ):
        done = millpond.inside("topic", *arguments)
        assert done.code == 1
        assert sentence in done.err
        assert done.err.count("\n") == 1


def test_altering_nothing_or_both_ways_is_a_wrong_call(millpond, topic):
    assert millpond.inside("topic", "alter", topic).code == 2
    assert (
        millpond.inside("topic", "alter", topic, "--config", "retention.ms=1", "--reset", "retention.ms").code
        == 2
    )


def test_a_groups_life(millpond, topic):
    millpond.inside("topic", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        millpond.inside("produce", topic, "--partition", partition, given=b"m\n" * 10)
    millpond.inside("consume", topic, "--group", topic, "--partition", "0", "--count", "4")
    assert {"group": topic, "state": "Empty", "protocol_type": "", "type": "classic"} in millpond.inside(
        "group", "list", "--json"
    ).json
    found = millpond.inside("group", "describe", topic, "--json").json
    assert (found["lag"], [each["read_from"] for each in found["positions"]]) == (6, [5])

    def reset(*arguments):
        done = millpond.inside("group", "reset", topic, "--topic", topic, "--json", *arguments)
        return [(each["from"], each["to"], each["lag"]) for each in done.json["partitions"]]

    assert reset("--to", "oldest", "--dry-run") == [(5, 1, 10), (None, 1, 10)]
    assert millpond.inside("group", "describe", topic, "--json").json["lag"] == 6
    assert reset("--to", "-3") == [(5, 8, 3), (None, 8, 3)]
    assert reset("--to", "2", "--partition", "1") == [(8, 2, 9)]
    assert reset("--to", "-1h") == [(8, 1, 10), (2, 1, 10)]
    assert millpond.inside("group", "describe", topic, "--json").json["lag"] == 20
    assert reset("--to", "newest") == [(1, 11, 0), (1, 11, 0)]
    assert (
        f"{topic}  Empty, 0 members, 0 messages behind" in millpond.inside("group", "describe", topic).lines
    )
    assert millpond.inside("consume", topic, "--group", topic).out == b""
    assert millpond.inside("group", "delete", topic).code == 1, "there is nobody to ask"
    assert millpond.inside("group", "delete", topic, "--yes").code == 0
    gone = millpond.inside("group", "describe", topic)
    assert gone.code == 1
    assert "does not exist. `millpond group list`" in gone.err


def test_unknown_lag_is_shown_as_unknown(topic):
    with Pond() as pond:
        millpond = Millpond(pond.grpc)
        pond.admin().create_topic(topic, partitions=2)
        producer = pond.producer(topic)
        for partition in (0, 1):
            producer.send_many([b"m"] * 5, partition=partition)
        groups = pond.broker.groups
        protocols = [Protocol("range", b"")]
        join = JoinRequest("", "c", "h", 60_000, 60_000, "consumer", protocols, require_known_id=False)
        member = run_in_background(groups.join("g", join))
        shown = millpond.inside("group", "describe", "g").lines
        assert shown[0] == "g  CompletingRebalance, 1 member, lag unknown: nothing is committed"
        assert millpond.inside("group", "describe", "g", "--json").json["lag"] is None

        assigned = {member.member_id: assignment(topic, 0, 1)}
        run_in_background(groups.sync("g", SyncRequest(member.member_id, 1, assignments=assigned)))
        shown = millpond.inside("group", "describe", "g").lines
        assert shown[0] == "g  Stable, 1 member, lag unknown: nothing is committed"
        assert [line.split()[-1] for line in shown[4:6]] == ["unknown", "unknown"]
        topic_partition = TopicPartition(pond.broker.log.topics.named(topic).id, 1)
        identity = CommitSender(member.member_id, 1)
        run_in_background(groups.commit_offsets("g", [GroupOffset(topic_partition, 2)], identity))
        found = millpond.inside("group", "describe", "g", "--json").json
        assert [(each["read_from"], each["lag"]) for each in found["positions"]] == [(None, None), (3, 3)]
        assert found["lag"] is None
        shown = millpond.inside("group", "describe", "g").lines
        assert shown[0].endswith(
            "at least 3 messages behind; lag of 1 partition unknown: nothing is committed there"
        )
        assert shown[4].split() == [topic, "0", "-", "6", "unknown"]


def assignment(topic, *partitions):
    """What the leader of a group of Kafka consumers gives to one of them."""
    named = struct.pack(">h", len(topic)) + topic.encode()
    numbers = struct.pack(f">{1 + len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + named + numbers + struct.pack(">i", -1)


def test_a_reset_to_a_partition_that_is_not_there(millpond, topic):
    millpond.inside("topic", "create", topic)
    done = millpond.inside("group", "reset", "g", "--topic", topic, "--to", "oldest", "--partition", "5")
    assert (done.code, "has no partition 5" in done.err) == (1, True)


# -- completion -----------------------------------------------------------------------------------------------


def complete(millpond, words, **extra):
    asked = {
        "_MILLPOND_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split())),
    }
    return [line.partition(",")[2] for line in millpond(**asked, **extra).lines]


def test_commands_topics_and_groups_complete(millpond, topic):
    millpond("topic", "create", topic)
    assert complete(millpond, "millpond topic ") == ["alter", "create", "delete", "describe", "list"]
    for words in ("millpond consume ", "millpond topic describe "):  # a broker that is slow is asked again
        assert any(topic in complete(millpond, words) for _ in range(20)), words


def test_without_a_broker_nothing_completes_and_nothing_is_said(millpond):
    asked = {"_MILLPOND_COMPLETE": "bash_complete", "COMP_WORDS": "millpond consume --address 127.0.0.1:1 "}
    done = millpond(**asked, COMP_CWORD="4")
    assert (done.out.strip(), done.err) == (b"", "")


def test_scripts_for_shells(millpond):
    for shell, word in (
        ("bash", "complete -o nosort"),
        ("zsh", "#compdef millpond"),
        ("fish", "complete --no-files"),
    ):
        assert word in millpond("completion", shell).out.decode()
    assert millpond("completion", "csh").code == 2
    checked = subprocess.run(["bash", "-n"], input=millpond("completion", "bash").out, check=False)
    assert checked.returncode == 0
