"""Our decisions by ACLs beside those of Kafka's StandardAuthorizer, on random ACLs and for every possible question."""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.peers.acl_sets import HOSTS, NAMES, random_acls
from tests.peers.support import available, said

from millpond.model.acls import CLUSTER_NAME, OPERATIONS, Acl, AclOperation, ResourceType
from millpond.model.principals import Principal
from millpond.security.rights import Rights
from peers import programs

SEED = 19
ACL_SETS = 150
ACLS_MAX = 30
USERS = ("alice", "bob")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)


class Question(NamedTuple):
    """Whether a client may do something; without a name, on some resource of the type."""

    user: str
    host: str
    kind: ResourceType
    operation: AclOperation
    name: str | None

    def line(self) -> str:
        who = f"User:{self.user}\t{self.host}\t{self.kind.name}"
        if self.name is None:
            return f"S\t{who}\t{self.operation.name}"
        return f"Q\t{who}\t{self.name}\t{self.operation.name}"

    def ours(self, rights: Rights) -> str:
        if self.name is None:
            allowed = rights.allows_somewhere(self.operation, self.kind)
        else:
            allowed = bool(rights.allowed(self.kind, self.name) >> self.operation & 1)
        return "y" if allowed else "n"


def questions() -> Iterator[Question]:
    for user, host, kind in itertools.product(USERS, HOSTS, KINDS):
        for operation in OPERATIONS[kind]:
            names = [CLUSTER_NAME] if kind is ResourceType.CLUSTER else [*NAMES, "zz"]
            yield from (Question(user, host, kind, operation, name) for name in names)
    for user, host in itertools.product(USERS, HOSTS):
        yield Question(user, host, ResourceType.TOPIC, AclOperation.WRITE, None)


def acl_line(acl: Acl) -> str:
    pattern = f"{acl.resource_type.name}\t{acl.pattern_type.name}\t{acl.name}"
    return f"A\t{pattern}\t{acl.principal}\t{acl.host}\t{acl.operation.name}\t{acl.permission.name}"


@pytest.mark.peers
def test_every_decision_is_that_of_kafka():
    dice = random.Random(SEED)
    asked = list(questions())
    sets = [
        random_acls(dice, [f"User:{user}" for user in USERS], dice.randint(1, ACLS_MAX))
        for _ in range(ACL_SETS)
    ]
    lines = [line for acls in sets for line in ("N", *map(acl_line, acls), *(q.line() for q in asked))]
    program = available(programs.authorizer)
    answers = said(program.run(text="".join(f"{line}\n" for line in lines))).strip()
    assert len(answers) == len(sets) * len(asked)
    print(f"{len(answers)} decisions, {answers.count('y')} of them allow; seed {SEED}")
    differing = []
    for number, acls in enumerate(sets):
        theirs = answers[number * len(asked) : (number + 1) * len(asked)]
        ours = "".join(our_answers(acls, asked))
        differing += [
            (acls, question)
            for question, mine, kafkas in zip(asked, ours, theirs, strict=True)
            if mine != kafkas
        ]
    assert differing == []


def our_answers(acls: list[Acl], asked: list[Question]) -> Iterator[str]:
    rights = {(user, host): Rights(Principal("User", user), host, acls) for user in USERS for host in HOSTS}
    return (question.ours(rights[question.user, question.host]) for question in asked)
