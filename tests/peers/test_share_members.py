"""Members of share groups (KIP-932) of Kafka's Java client: the scenarios are in `peers/share-groups`. Each is run with
Apache Kafka, too, so that what is expected is what Kafka does."""

import pytest
from peers.programs import Program
from tests.peers.conftest import TARGET
from tests.peers.support import available, shows

from peers import clients, programs

CLIENT = "Kafka's Java client"


@pytest.fixture(scope="session")
def members() -> Program:
    return available(programs.java_share_members)


@pytest.fixture
def version() -> str:
    return programs.kafka.VERSION


@pytest.fixture
def expect(members, version, bootstrap, prefix, request):
    addresses = [bootstrap]
    if TARGET == clients.TARGET:
        addresses.insert(0, request.getfixturevalue("kafka_bootstrap"))

    def expect(scenario, found):
        for address in addresses:
            assert members.ask(scenario, address, prefix) == found

    return expect


@shows(CLIENT, "share group: implicit acknowledgement, and commitSync: each of 20 records once")
def test_implicit_acknowledgement(expect):
    expect("implicit", {"once": True, "left": ["20 1"]})


@shows(CLIENT, "share group: accepts, rejects and releases records")
def test_explicit_acknowledgement(expect):
    expect("explicit", {"lock": 2_000, "seen": ["0 1", "1 1", "2 1", "2 2", "3 1"]})


@shows(CLIENT, "share group: renews the lock of a record for three times as long as it lasts")
def test_renewal(expect):
    expect("renew", {"renewed": True, "count": 1, "outcome": "none", "other": ["1 1"]})


@shows(CLIENT, "share group: a record whose lock has ended comes to another member")
def test_locks_end(expect):
    expect("expiry", ["0 2", "1 1"])


@shows(CLIENT, "share group: a record is delivered no more often than share.delivery.count.limit")
def test_delivery_limit(expect):
    expect("limit", ["0 1", "0 2", "1 1"])


@shows(
    CLIENT,
    "share group: three members share 60 records of one partition; a member that closes releases its own",
)
def test_members_share_a_partition(expect):
    expect("members", {"held": 5, "counts": {"1": 55, "2": 5}, "both": True, "group": True})


@shows(
    CLIENT, "share group: half of each batch of 100 records is released and delivered again, with every codec"
)
def test_batches(expect):
    expect("batches", {"first": 500, "second": 250, "all": 750})


@shows(CLIENT, "share group: share.isolation.level hides aborted transactions, or does not")
def test_transactions(expect):
    expect(
        "transactions",
        {
            "read_committed": ["commit 1", "commit 1"],
            "read_uncommitted": ["commit 1", "abort 1", "commit 1"],
        },
    )


@shows(CLIENT, "share group: describes it; lists, moves and deletes its offsets; deletes it (Admin)")
def test_administration(expect):
    expect(
        "administration",
        {
            "1 described": "Stable 1",
            "2 lag": ["0", "0"],
            "3 refused": "GroupNotEmptyException",
            "4 moved": "2 lag 3",
            "5 again": ["0:2", "0:3", "0:4"],
            "6 without offsets": 0,
            "7 deleted": "GroupIdNotFoundException",
        },
    )
