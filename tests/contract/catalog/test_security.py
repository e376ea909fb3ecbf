"""Users, tokens and ACLs, and the version that every change of them raises."""

import pytest

from millpond.catalog import security
from millpond.catalog.security import ApiToken, ScramCredential
from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import InvalidAcl, InvalidRequest, UnknownToken, UnknownUser
from millpond.model.quotas import CONSUMER_BYTE_RATE, EVERY_NAME, PRODUCER_BYTE_RATE, ClientQuota, QuotaEntity

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ALICE = ScramCredential("alice", SHA256, b"\0salt", b"\xffstored", b"server", 4096)
TOKEN = ApiToken("abc", b"\0digest", "User:alice", None, 17, "User:admin", "for the tests")
ORDERS = Acl(
    *(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*"),
    *(AclOperation.READ, Permission.ALLOW),
)
TEAM = ORDERS._replace(pattern_type=PatternType.PREFIXED, name="team-")


def raises_version(catalog, function, *arguments):
    before = catalog.read(security.version)
    catalog.write(function, *arguments)
    return catalog.read(security.version) > before


def test_a_new_catalog_has_no_users_and_a_secret(catalog):
    rows = catalog.read(security.read)
    assert rows[1:] == ([], [], [], [])
    assert len(catalog.read(security.secret)) == 32


def test_quotas_are_set_changed_and_removed(catalog):
    alice, every = QuotaEntity("alice", None), QuotaEntity(EVERY_NAME, "app")
    assert raises_version(
        catalog, security.alter_quotas, alice, {PRODUCER_BYTE_RATE: 10, CONSUMER_BYTE_RATE: 20}
    )
    catalog.write(security.alter_quotas, every, {PRODUCER_BYTE_RATE: 30})
    catalog.write(security.alter_quotas, alice, {PRODUCER_BYTE_RATE: 11, CONSUMER_BYTE_RATE: None})
    stored = [ClientQuota(every, PRODUCER_BYTE_RATE, 30.0), ClientQuota(alice, PRODUCER_BYTE_RATE, 11.0)]
    assert sorted(catalog.read(security.quotas)) == sorted(stored)
    assert catalog.read(security.read).quotas == catalog.read(security.quotas)


def test_an_invalid_quota_is_not_stored(catalog):
    for changes in ({"bytes": 5}, {PRODUCER_BYTE_RATE: 0}, {PRODUCER_BYTE_RATE: 1.5}):
        with pytest.raises(InvalidRequest):
            catalog.write(security.alter_quotas, QuotaEntity("alice", None), changes)
    with pytest.raises(InvalidRequest):
        catalog.write(security.alter_quotas, QuotaEntity(None, None), {PRODUCER_BYTE_RATE: 1})
    assert catalog.read(security.quotas) == []


def test_a_cluster_has_a_limit_of_quotas(catalog, monkeypatch):
    monkeypatch.setattr(security, "QUOTAS_MAX", 1)
    with pytest.raises(InvalidRequest, match="at most 1"):
        catalog.write(
            security.alter_quotas, QuotaEntity("alice", None), {PRODUCER_BYTE_RATE: 1, CONSUMER_BYTE_RATE: 2}
        )


def test_credentials_are_read_as_they_were_put(catalog):
    other = ALICE._replace(mechanism=SHA512, iterations=16_384)
    assert raises_version(catalog, security.put_credentials, [ALICE, other])
    version = catalog.read(security.version)
    assert catalog.read(security.credentials) == [
        ALICE._replace(version=version),
        other._replace(version=version),
    ]


def test_a_changed_password_has_a_new_version(catalog):
    catalog.write(security.put_credentials, [ALICE])
    [before] = catalog.read(security.credentials)
    catalog.write(security.put_credentials, [ALICE._replace(salt=b"other")])
    [after] = catalog.read(security.credentials)
    assert (after.salt, after.version > before.version) == (b"other", True)


def test_one_mechanism_or_the_whole_user_is_deleted(catalog):
    catalog.write(security.put_credentials, [ALICE, ALICE._replace(mechanism=SHA512)])
    assert raises_version(catalog, security.delete_credential, "alice", SHA256)
    assert [each.mechanism for each in catalog.read(security.credentials)] == [SHA512]
    catalog.write(security.put_credentials, [ALICE, ALICE._replace(user="bob")])
    assert raises_version(catalog, security.delete_user, "alice")
    assert [each.user for each in catalog.read(security.credentials)] == ["bob"]


def test_deleting_what_does_not_exist_says_so(catalog):
    with pytest.raises(UnknownUser, match="alice"):
        catalog.write(security.delete_user, "alice")
    with pytest.raises(UnknownUser, match="alice"):
        catalog.write(security.delete_credential, "alice", SHA256)
    with pytest.raises(UnknownToken, match="abc"):
        catalog.write(security.delete_token, "abc")


def test_tokens_are_read_as_they_were_added(catalog):
    expiring = TOKEN._replace(id="abd", expires_at_ms=99)
    assert raises_version(catalog, security.add_token, TOKEN)
    catalog.write(security.add_token, expiring)
    assert catalog.read(security.tokens) == [TOKEN, expiring]
    assert raises_version(catalog, security.delete_token, "abc")
    assert catalog.read(security.tokens) == [expiring]


def test_an_acl_that_is_put_twice_is_one_row(catalog):
    assert raises_version(catalog, security.put_acls, [ORDERS, TEAM])
    catalog.write(security.put_acls, [ORDERS])
    assert catalog.read(security.acls) == [ORDERS, TEAM]


def test_an_invalid_acl_leaves_nothing_behind(catalog):
    with pytest.raises(InvalidAcl):
        catalog.write(security.put_acls, [ORDERS, ORDERS._replace(name="")])
    assert catalog.read(security.acls) == []


def test_each_filter_returns_what_it_deleted(catalog):
    catalog.write(security.put_acls, [ORDERS, TEAM])
    by_name = AclFilter(name="orders", pattern_type=PatternType.MATCH)
    everything, nothing = AclFilter(), AclFilter(name="other")
    deleted = catalog.write(security.delete_acls, [by_name, everything, nothing])
    assert deleted == [[ORDERS], [ORDERS, TEAM], []]
    assert catalog.read(security.acls) == []


def test_stored_secrets_are_not_shown(catalog):
    assert "stored" not in repr(ALICE)
    assert "digest" not in repr(TOKEN)


def test_limits_hold(catalog, monkeypatch):
    monkeypatch.setattr(security, "ACLS_MAX", 1)
    with pytest.raises(InvalidAcl, match="at most 1"):
        catalog.write(security.put_acls, [ORDERS, TEAM])
    assert catalog.read(security.acls) == []
