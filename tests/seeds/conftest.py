"""Servers and clients of the seeds' tests."""

import itertools

import pytest
from tests.seeds import minikafka
from tests.seeds.processes import Server

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kinds(tmp_path_factory):
    """The messages of the seeds' schema."""
    return minikafka.messages(tmp_path_factory.mktemp("schema"))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One broker with all interfaces for every test that brings topics of its own and needs nothing special."""
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def mini(server, kinds):
    """A MiniKafka client of that broker."""
    with minikafka.MiniKafka(server.grpc, kinds) as client:
        yield client


@pytest.fixture
def topic():
    """A name that no other test uses."""
    return f"topic-{next(numbers)}"
