"""Rules as data: which resources a request names, and which rights it needs for them."""

from types import SimpleNamespace as Request

import pytest

from millpond.model.acls import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import ClusterNotAuthorized, TopicNotAuthorized
from millpond.model.principals import Principal
from millpond.security import OPEN_ACCESS, Access, Identity, Rights
from millpond.security.requirements import AnyOf, Needs, NeedsSomewhere, Shows, needs, require_creation

READ, CREATE = AclOperation.READ, AclOperation.CREATE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


class Source:
    """Rights of one user that do not change."""

    version = 1

    def __init__(self, *rights):
        self._acls = [
            Acl(kind, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW)
            for operation, kind, name in rights
        ]

    def rights(self, principal, host):
        return Rights(principal, host, self._acls)

    def is_valid(self, _):
        return True

    def denied(self, *_): ...


def access(*rights):
    return Access(Identity(Principal("User", "alice"), ""), "::1", Source(*rights))


def read(owner, name):
    return getattr(owner, name, None)


@pytest.mark.parametrize(
    ("requirement", "request_", "names"),
    [
        (Needs(READ, CLUSTER), Request(), [CLUSTER_NAME]),
        (Needs(READ, TOPIC, of="topic"), Request(topic="a"), ["a"]),
        (Needs(READ, TOPIC, of="topic"), Request(topic=""), [""]),
        (Needs(READ, TOPIC, of="topic"), Request(), None),
        (Needs(READ, TOPIC, of="attach.topic"), Request(attach=Request(topic="a")), ["a"]),
        (Needs(READ, TOPIC, of="attach.topic"), Request(), None),
        (Needs(READ, GROUP, of=("topic", "name")), Request(topic="a", name="b"), ["a/b"]),
        (Needs(READ, GROUP, of=("topic", "name")), Request(topic="a"), ["a/"]),
        (Needs(READ, GROUP, of=("topic", "name")), Request(), None),
        (Needs(READ, TOPIC, of="all.topic"), Request(all=[]), []),
        (
            Needs(READ, TOPIC, of="all.topic"),
            Request(all=[Request(topic="a"), Request(topic="b")]),
            ["a", "b"],
        ),
        (Needs(READ, TOPIC, of="all.topic"), Request(all=[Request(topic="a"), Request()]), ["a", ""]),
        (Needs(READ, TOPIC, of="topic", when=("count",)), Request(topic="a"), []),
        (Needs(READ, TOPIC, of="topic", when=("count",)), Request(topic="a", count=0), []),
        (Needs(READ, TOPIC, of="topic", when=("count",)), Request(topic="a", count=1), ["a"]),
        (Needs(READ, TOPIC, of="topic", when=("set", "reset")), Request(topic="a", reset=["x"]), ["a"]),
        (Needs(READ, TOPIC, of="config.to", when=("config.to",)), Request(config=Request(to="a")), ["a"]),
        (Needs(READ, TOPIC, of="config.to", when=("config.to",)), Request(config=Request()), []),
    ],
)
def test_a_requirement_names_the_resources_of_a_request(requirement, request_, names):
    assert requirement.names(request_, read) == names


def test_every_name_needs_the_right():
    rule = Needs(READ, TOPIC, of="all.topic")
    rule.require(access((READ, TOPIC, "a"), (READ, TOPIC, "b")), ["a", "b"])
    with pytest.raises(TopicNotAuthorized, match="User:alice may not read topic 'b'"):
        rule.require(access((READ, TOPIC, "a")), ["a", "b"])


@pytest.mark.parametrize(
    ("granted", "is_enough"),
    [((CREATE, TOPIC, "a"), True), ((CREATE, CLUSTER, CLUSTER_NAME), True), ((CREATE, TOPIC, "b"), False)],
)
def test_one_of_two_rights_is_enough(granted, is_enough):
    either = AnyOf(Needs(CREATE, TOPIC, of="name"), Needs(CREATE, CLUSTER))
    for check in (
        lambda: either.require(access(granted), ["a"]),
        lambda: require_creation(access(granted), "a"),
    ):
        if is_enough:
            check()
        else:
            with pytest.raises(TopicNotAuthorized):
                check()


def test_a_right_on_some_resource_can_be_enough():
    either = AnyOf(Needs(AclOperation.IDEMPOTENT_WRITE, CLUSTER), NeedsSomewhere(AclOperation.WRITE, TOPIC))
    either.require(access((AclOperation.WRITE, TOPIC, "a")), [CLUSTER_NAME])
    with pytest.raises(ClusterNotAuthorized):
        either.require(access((READ, TOPIC, "a")), [CLUSTER_NAME])


def test_what_a_response_shows_is_no_reason_to_refuse():
    Shows(AclOperation.DESCRIBE, TOPIC).require(access(), [])


def test_requirements_must_be_given():
    with pytest.raises(ValueError, match="AUTHENTICATED or PUBLIC"):
        needs()


def test_without_security_every_topic_may_be_created():
    require_creation(OPEN_ACCESS, "a")
