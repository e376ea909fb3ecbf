"""`millpond cluster` against two workers: what it shows, and that it returns when a thing is done."""

import json
import subprocess

import pytest
from tests.unit.cli.conftest import COMMAND, LONGEST_S, Millpond, environment

PARTITIONS = 4


@pytest.fixture(scope="module")
def millpond(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    arguments = ["serve", "--workers=2", "--json", "--kafka=", "--http=", "--grpc=127.0.0.1:0"]
    command = [*COMMAND, *arguments, f"--data-dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        try:
            workers = json.loads(process.stdout.readline())["workers"]
            found = Millpond(workers[0]["listeners"]["grpc"])
            assert found.inside("topic", "create", "t", "--partitions", str(PARTITIONS)).code == 0
            assert found.inside("cluster", "rebalance").code == 0
            yield found
        finally:
            process.terminate()
            process.wait(LONGEST_S)


def brokers(millpond):
    return {each["node_id"]: each for each in millpond.inside("cluster", "status", "--json").json["brokers"]}


def test_status_is_a_table_for_people_and_facts_for_programs(millpond):
    shown = millpond.inside("cluster", "status")
    assert shown.code == 0
    assert "2 brokers, 4 partitions" in shown.lines[0]
    assert shown.lines[2].split() == [
        *("NODE", "STATE", "PARTITIONS", "SHARDS", "LEASE", "KAFKA", "GRPC", "HTTP", "MACHINE")
    ]
    facts = millpond.inside("cluster", "status", "--json").json
    assert (facts["partitions"], facts["unowned"], facts["even"]) == (PARTITIONS, 0, True)
    assert [each["state"] for each in facts["brokers"]] == ["serving", "serving"]
    assert [each["partitions"] for each in facts["brokers"]] == [2, 2]


def test_drain_returns_when_the_broker_owns_nothing_and_undo_when_it_has_its_share_again(millpond):
    node = max(brokers(millpond))
    drained = millpond.inside("cluster", "drain", str(node), "--json")
    assert drained.code == 0
    found = {each["node_id"]: each for each in drained.json["brokers"]}
    assert (found[node]["state"], found[node]["partitions"]) == ("drained", 0)
    assert millpond.inside("cluster", "status").out.count(b"drained") == 1
    undone = millpond.inside("cluster", "drain", str(node), "--undo", "--json")
    assert undone.json["even"]
    assert brokers(millpond)[node]["partitions"] == PARTITIONS // 2


def test_drain_without_waiting_says_how_it_stands(millpond):
    node = max(brokers(millpond))
    started = millpond.inside("cluster", "drain", str(node), "--wait", "0", "--json")
    assert {each["node_id"]: each["state"] for each in started.json["brokers"]}[node] in (
        "draining",
        "drained",
    )
    assert millpond.inside("cluster", "drain", str(node), "--undo").code == 0


def test_rebalance_finds_nothing_to_do(millpond):
    facts = millpond.inside("cluster", "rebalance", "--json").json
    assert facts["even"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["drain", "99"], 1, "there is no broker 99"),
        (["drain", "0"], 2, "0"),
        (["drain"], 2, "NODE"),
        (["status", "--address", "127.0.0.1:1"], 1, "No broker responds at 127.0.0.1:1"),
        (["status", "--address", "127.0.0.1:1,127.0.0.1:2"], 1, "No broker responds"),
        (["status", "--address", "nowhere"], 2, "HOST:PORT"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(millpond, arguments, code, sentence):
    done = millpond.inside("cluster", *arguments)
    assert done.code == code
    assert sentence in done.err


def test_the_last_one_is_not_drained(millpond):
    first, second = sorted(brokers(millpond))
    assert millpond.inside("cluster", "drain", str(first)).code == 0
    refused = millpond.inside("cluster", "drain", str(second))
    assert refused.code == 1
    assert "no other broker to take" in refused.err
    assert millpond.inside("cluster", "drain", str(first), "--undo").code == 0


def test_one_of_several_addresses_is_enough(millpond):
    several = f"127.0.0.1:1,{millpond.address}"
    assert millpond.inside("cluster", "status", "--address", several).code == 0
