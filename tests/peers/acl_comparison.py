"""Two brokers with the same users, ACLs, topics and groups, to which clients send the same requests."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers.server import free_port
from tests.clients.process import BrokerProcess
from tests.peers.acl_actions import (
    DELETED,
    EXISTING,
    Action,
    create_acls,
    create_topic,
    find_coordinator,
    init_producer_id,
    offset_commit,
    outcome,
)
from tests.peers.acl_sets import HOSTS
from tests.peers.differential.comparing import Difference, differences
from tests.peers.differential.subject import NOT_READY
from tests.peers.differential.wire import Wire

from millpond.catalog import security
from millpond.model.acls import Acl
from millpond.protocol.messages import acls as acl_messages
from millpond.protocol.messages import metadata
from millpond.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millpond.security.scram import new_credential
from millpond.testing import running_broker
from peers import kafka

PASSWORD: Final = "pencil"
ADMIN: Final = "admin"
USERS: Final = tuple(f"u{number}" for number in range(12))
ITERATIONS: Final = 4096
SETTLE_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.02
ASK_AGAIN_SECONDS: Final = 0.5
"""Kafka's controller learns of ACLs a moment after its broker."""
SENTINEL: Final = "User:sentinel-"
OF_ALL: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


class Subject:
    """One broker, with the connections of an administrator and of each user."""

    def __init__(self, admin: Wire, address: str, stack: ExitStack) -> None:
        self._admin = admin
        self._address = address
        self._stack = stack
        self._clients: dict[str, Wire] = {}
        self._rounds = 0
        self.topic_ids: dict[str, bytes] = {}

    def prepare(self) -> None:
        """Topics, groups with offsets, and the coordinators of transactions."""
        for name in (*EXISTING, DELETED):
            self._create(name)
        for key_type in (0, 1):
            self._done(find_coordinator("a", key_type), 4)
        for group in EXISTING:
            for topic in ("a", "b"):
                self._done(offset_commit(group, topic), 8)
        self._done(init_producer_id("warm-up"), 4)
        self._done(init_producer_id(None), 4)

    def _done(self, request: Any, version: int) -> None:
        told = outcome(self._settled(self._admin, request, version))
        assert "NONE" in str(told), told

    def set_acls(self, wanted: Sequence[Acl]) -> None:
        """Replaces all ACLs, and waits until the broker has the last of them."""
        every = acl_messages.DeleteAclsFilter(**OF_ALL)
        self._admin.ask(acl_messages.DeleteAclsRequest(filters=[every]), 3)
        self._rounds += 1
        marker = wanted[0]._replace(principal=f"{SENTINEL}{self._rounds}")
        for part in (wanted, [marker]):
            answer = self._admin.ask(create_acls([_creation(acl) for acl in part]), 3)
            assert [each.error_code for each in answer.results] == [0] * len(part), answer
        _until(lambda: self._has_acl(marker.principal))

    def _has_acl(self, principal: str) -> bool:
        request = acl_messages.DescribeAclsRequest(**OF_ALL | {"principal_filter": principal})
        return bool(self._admin.ask(request, 3).resources)

    def seen(self, user: str, action: Action) -> Any:
        """The outcome of an action. What it deleted is created again."""
        told = outcome(self._settled(self._client(user), action.build(self.topic_ids), action.version))
        if action.deletes and "NONE" in str(told):
            self._create(action.deletes)
        return told

    def create_acl(self, creation: acl_messages.AclCreation) -> Any:
        return outcome(self._admin.ask(create_acls([creation]), 3))

    def _create(self, name: str) -> None:
        def is_created() -> bool:
            answer = self._admin.ask(create_topic(name), 7)
            return answer.topics[0].error_code in (0, 36)  # it exists

        _until(is_created)
        _until(lambda: self._learn_id(name))

    def _learn_id(self, name: str) -> bool:
        asked = metadata.MetadataRequestTopic(name=name)
        answer = self._admin.ask(
            metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 12
        )
        topic = answer.topics[0]
        if topic.error_code or any(each.error_code for each in topic.partitions):
            return False
        self.topic_ids[name] = bytes(topic.topic_id)
        return True

    def _client(self, user: str) -> Wire:
        if user not in self._clients:
            source = HOSTS[USERS.index(user) % len(HOSTS)]
            self._clients[user] = self._stack.enter_context(logged_in(self._address, user, source))
        return self._clients[user]

    def _settled(self, wire: Wire, request: Any, version: int) -> Any:
        give_up = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = wire.ask(request, version)
            if not _says_wait(outcome(answer)) or time.monotonic() > give_up:
                return answer
            time.sleep(POLL_SECONDS)


def logged_in(address: str, user: str, source: str = HOSTS[0]) -> Wire:
    """A connection whose client has authenticated with PLAIN."""
    wire = Wire(address, source)
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    proof = f"\0{user}\0{PASSWORD}".encode()
    answer = wire.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)
    assert answer.error_code == 0, answer
    return wire


@contextmanager
def kafka_subject(folder: Path) -> Iterator[Subject]:
    """Apache Kafka with its StandardAuthorizer. Clients that do not authenticate are its administrators."""
    port, controller, clients = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{clients}"
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with kafka.running(folder, settings, port) as server, ExitStack() as stack:
        yield Subject(stack.enter_context(Wire(server.address)), f"127.0.0.1:{clients}", stack)


async def _create_users(folder: Path) -> None:
    made = [new_credential(user, PASSWORD, "SCRAM-SHA-256", ITERATIONS, bytes) for user in (ADMIN, *USERS)]
    async with running_broker(folder) as broker:
        await broker.log.write(lambda tx: security.put_credentials(tx, made))


@contextmanager
def millpond_subject(folder: Path, create_users: Any) -> Iterator[Subject]:
    create_users(_create_users(folder / "data"))
    broker = BrokerProcess(folder, security="on", super_users=f"User:{ADMIN}", node_id="1")
    broker.start()
    try:
        with ExitStack() as stack:
            yield Subject(stack.enter_context(logged_in(broker.address, ADMIN)), broker.address, stack)
    finally:
        broker.stop()


class Round(NamedTuple):
    actions: int
    refused: int
    differences: list[Difference]


def compare(
    kafkas: Subject,
    ours: Subject,
    acls: Sequence[Acl],
    actions: Sequence[Action],
    is_expected: Callable[[Difference], bool],
) -> Round:
    """Every action by every user. A difference that is not expected is looked at again a moment later."""
    for subject in (kafkas, ours):
        subject.set_acls(acls)
    found: list[Difference] = []
    refused = 0
    for user, action in itertools.product(USERS, actions):
        theirs, seen = _asked(kafkas, ours, user, action)
        if not all(map(is_expected, seen)):
            time.sleep(ASK_AGAIN_SECONDS)
            theirs, seen = _asked(kafkas, ours, user, action)
        refused += "AUTHORIZATION_FAILED" in str(theirs)
        found += seen
    return Round(len(USERS) * len(actions), refused, found)


def _asked(kafkas: Subject, ours: Subject, user: str, action: Action) -> tuple[Any, list[Difference]]:
    theirs, mine = ({action.name: subject.seen(user, action) or {}} for subject in (kafkas, ours))
    return theirs, differences(theirs, mine)


def _creation(acl: Acl) -> acl_messages.AclCreation:
    return acl_messages.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _says_wait(told: Any) -> bool:
    if isinstance(told, Mapping):
        return any(map(_says_wait, told.values()))
    if isinstance(told, list):
        return any(map(_says_wait, told))
    return told in NOT_READY


def _until(condition: Any) -> None:
    give_up = time.monotonic() + SETTLE_SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up, "the broker did not become ready"
        time.sleep(POLL_SECONDS)
