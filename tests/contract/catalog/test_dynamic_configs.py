"""Configs of groups and brokers, and the version that every change of them raises."""

import pytest

from millpond.catalog import dynamic_configs
from millpond.model.dynamic_configs import BROKER, EVERY_BROKER, GROUP, ConfigResource
from millpond.model.errors import InvalidConfig, InvalidRequest

BILLING = ConfigResource(GROUP, "billing")
EVERY = ConfigResource(BROKER, EVERY_BROKER)


def put(catalog, resource, **configs):
    catalog.write(dynamic_configs.alter, resource, lambda before: {**before, **configs})


def test_a_new_catalog_has_no_configs(catalog):
    found = catalog.read(dynamic_configs.read)
    assert found.by_resource == {}
    assert found.of(BILLING) == {}


def test_configs_are_set_changed_and_removed(catalog):
    put(catalog, BILLING, a="1", b="2")
    put(catalog, EVERY, a="3")
    catalog.write(dynamic_configs.alter, BILLING, lambda before: {"b": before["b"] + "0", "c": "4"})
    found = catalog.read(dynamic_configs.read)
    assert found.by_resource == {BILLING: {"b": "20", "c": "4"}, EVERY: {"a": "3"}}
    assert (found.names(GROUP), found.names(BROKER)) == (["billing"], [""])
    assert catalog.read(dynamic_configs.of, BILLING) == {"b": "20", "c": "4"}
    catalog.write(dynamic_configs.alter, BILLING, lambda _: {})
    assert catalog.read(dynamic_configs.read).names(GROUP) == []


def test_every_change_raises_the_version(catalog):
    versions = [catalog.read(dynamic_configs.version)]
    for configs in ({"a": "1"}, {"a": "2"}):
        put(catalog, BILLING, **configs)
        versions.append(catalog.read(dynamic_configs.version))
    assert versions == sorted(set(versions))
    assert catalog.read(dynamic_configs.read).version == versions[-1]


def test_an_alteration_that_refuses_changes_nothing(catalog):
    put(catalog, BILLING, a="1")
    before = catalog.read(dynamic_configs.read)

    def refuse(_):
        raise InvalidConfig(key="a", value="2", reason="no")

    with pytest.raises(InvalidConfig):
        catalog.write(dynamic_configs.alter, BILLING, refuse)
    assert catalog.read(dynamic_configs.read) == before


def test_a_cluster_has_a_limit_of_configs(catalog, monkeypatch):
    monkeypatch.setattr(dynamic_configs, "CONFIGS_MAX", 2)
    put(catalog, BILLING, a="1", b="2")
    with pytest.raises(InvalidRequest, match="at most 2"):
        put(catalog, EVERY, a="1")
    put(catalog, BILLING, a="3")
    assert catalog.read(dynamic_configs.read).by_resource == {BILLING: {"a": "3", "b": "2"}}
