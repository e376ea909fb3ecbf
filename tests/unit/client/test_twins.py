"""Each client without an event loop is the twin of an asyncio client: the same calls, arguments, defaults, results and
docstrings."""

import inspect
import re
import typing

import pytest
from tests.each import for_each

import millpond
from millpond import client
from millpond.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncDelivery,
    AsyncPayloads,
    AsyncProducer,
    AsyncPublisher,
    AsyncSubscriber,
    AsyncTransaction,
    Consumer,
    Delivery,
    Payloads,
    Producer,
    Publisher,
    Subscriber,
    Transaction,
)

TWINS = {
    Producer: AsyncProducer,
    Consumer: AsyncConsumer,
    Admin: AsyncAdmin,
    Payloads: AsyncPayloads,
    Publisher: AsyncPublisher,
    Subscriber: AsyncSubscriber,
    Transaction: AsyncTransaction,
    Delivery: AsyncDelivery,
}
SYNC_NAMES = {
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
INSIDE = {
    AsyncConsumer: {"lend"},
    AsyncProducer: {"in_topic", "connections"},
    AsyncPublisher: {"in_topic", "referring", "carried_bytes_max"},
    AsyncTransaction: {"request", "conclude"},
}
"""Of the library itself."""
INSIDE_ATTRIBUTES = {"producer"}
CONSTRUCTED_BY_THE_LIBRARY = (Transaction, Delivery)
OWN_DOCSTRINGS = {
    "Subscriber.run": "it has threads",
}
OWN_ANNOTATIONS = {("Subscriber.run", "handler"): "an asyncio handler may be a coroutine"}


def public(kind):
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if (not name.startswith("_") or name in SYNC_NAMES or name in SYNC_NAMES.values())
        and (inspect.isfunction(member) or isinstance(member, property))
    }


def pairs():
    for twin, model in TWINS.items():
        for name, member in public(model).items():
            if name not in INSIDE.get(model, ()):
                yield twin, SYNC_NAMES.get(name, name), member


def function(member):
    return member.fget if isinstance(member, property) else member


def shape(called):
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function(called)).parameters.values()
    ]


def annotations(called):
    """By name, as text: what an asyncio call returns is awaited, so the twin returns a future of another kind."""
    hints = typing.get_type_hints(function(called))
    return {name: re.sub(r"[\w.]*\.(\w+)", r"\1", _text(hint)) for name, hint in hints.items()}


def _text(hint):
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def translated(text):
    return re.sub(r"\bAsync(?=[A-Z])", "", text).replace("Future[Placed]", "Sent")


def derived(docstring):
    """What the docstring of an asyncio call says for its twin."""
    return re.sub(r"\bAsync(?=[A-Z])", "", docstring).replace("async with", "with").replace("await ", "")


@pytest.mark.parametrize("twin", TWINS)
def test_twins_have_the_same_calls(twin):
    model = TWINS[twin]
    names = {SYNC_NAMES.get(name, name) for name in public(model)} - INSIDE.get(model, set())
    assert set(public(twin)) == names


@pytest.mark.parametrize("twin", [each for each in TWINS if each not in CONSTRUCTED_BY_THE_LIBRARY])
def test_twins_are_constructed_in_the_same_way(twin):
    assert shape(twin.__init__) == shape(TWINS[twin].__init__)
    hints = [typing.get_type_hints(each.__init__) for each in (twin, TWINS[twin])]
    assert hints[0] == hints[1]


@pytest.mark.parametrize("twin", [Producer, Publisher, Payloads, Consumer, Subscriber])
async def test_twins_have_the_same_attributes(twin):
    named = {"subscription": "s"} if twin is Subscriber else {}
    clients = [each("t", **named, address="127.0.0.1:1") for each in (twin, TWINS[twin])]
    first, second = ({name for name in vars(each) if not name.startswith("_")} for each in clients)
    assert first == second - INSIDE_ATTRIBUTES
    clients[0].close()
    await clients[1].close()


@for_each("pair", [*pairs()])
def test_twins_take_the_same_arguments(pair):
    twin, name, member = pair
    assert shape(getattr(twin, name)) == shape(member), f"{twin.__name__}.{name}"


@for_each("pair", [each for each in pairs() if not each[1].startswith("__")])
def test_twins_have_the_same_annotations(pair):
    twin, name, member = pair
    call = f"{twin.__name__}.{name}"
    expected = {each: translated(text) for each, text in annotations(member).items()}
    found = annotations(getattr(twin, name))
    differing = {each for each in expected | found if expected.get(each) != found.get(each)}
    assert differing == {each for owner, each in OWN_ANNOTATIONS if owner == call}, call
    assert "return" in found, call


@for_each("pair", [*pairs()])
def test_twins_have_the_same_docstrings(pair):
    twin, name, member = pair
    call = f"{twin.__name__}.{name}"
    if name in ("__enter__", "__exit__"):
        return
    found, model = getattr(twin, name).__doc__, member.__doc__
    if name != "__iter__" or twin is not Subscriber:  # which returns itself
        assert found, call
        assert (found == derived(model)) != (call in OWN_DOCSTRINGS), call


@pytest.mark.parametrize("twin", TWINS)
def test_twins_have_the_same_class_docstring(twin):
    assert twin.__doc__ == derived(TWINS[twin].__doc__)


@for_each("name", client.__all__)
def test_every_public_class_and_call_has_a_docstring(name):
    kind = getattr(client, name)
    assert kind.__doc__, name
    assert not kind.__doc__.startswith(f"{name}("), "the one that dataclasses make"
    for called, member in public(kind).items():
        assert called.startswith("__") or member.__doc__, f"{name}.{called}"


def test_the_topic_comes_first_and_the_address_is_a_keyword():
    for kind in (
        millpond.Producer,
        millpond.Consumer,
        millpond.Publisher,
        millpond.Payloads,
        millpond.Subscriber,
    ):
        first, *others = list(inspect.signature(kind).parameters.values())
        assert first.name in ("topic", "topics"), kind
        address = next(each for each in others if each.name == "address")
        assert (address.kind, address.default) == (address.KEYWORD_ONLY, None), kind
