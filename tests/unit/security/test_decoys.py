"""What an unknown user seems to have: like what known users have, and the same each time."""

from collections import Counter

import pytest
from tests.unit.security.proofs import SECRET, SHA_256, SHA_512, credential

from millpond.security.decoys import Decoys, SaltShape, shape_of

DEFAULT = 16_384
KAFKA_SALT = b"1x0f3bq8zg5k7m2n4p6r9stuvw"
"""As Kafka's tools create it: 130 random bits in base 36. With 26 digits the first one is always 1."""
NAMES = [f"user{number}" for number in range(2_000)]


def made(decoys, user, mechanism=SHA_256, secret=SECRET):
    return decoys.credential(user, mechanism, secret=secret, iterations=DEFAULT)


def stored(name, iterations=DEFAULT, salt=bytes(range(16)), mechanism=SHA_256):
    return credential(name, mechanism=mechanism)._replace(iterations=iterations, salt=salt)


def test_without_users_the_defaults_apply():
    decoy = made(Decoys(), "bob")
    assert shape_of(decoy) == SaltShape(DEFAULT, 16)
    assert (len(decoy.stored_key), len(made(Decoys(), "bob", SHA_512).stored_key)) == (32, 64)


@pytest.mark.parametrize(
    "salt", [bytes(range(16)), bytes(64), bytes(200), KAFKA_SALT, b"k" + KAFKA_SALT[2:], b"ab"]
)
def test_a_decoy_is_like_the_only_kind_of_credential(salt):
    """Neither iterations, nor length, nor the alphabet of the salt tell it from a stored one."""
    decoys = Decoys([stored("alice", 5000, salt)])
    for name in NAMES[:50]:
        assert shape_of(made(decoys, name)) == shape_of(stored("alice", 5000, salt))
    salts = {made(decoys, name).salt for name in NAMES[:50]}
    assert salt not in salts
    assert len(salts) == 50 if len(salt) > 2 else len(salts) > 40


def test_kinds_are_as_frequent_as_among_the_stored_ones():
    few = [stored(f"a{number}", 4096, KAFKA_SALT) for number in range(2)]
    many = [stored(f"b{number}") for number in range(8)]
    decoys = Decoys([*few, *many])
    kinds = Counter(shape_of(made(decoys, name)) for name in NAMES)
    assert set(kinds) == {shape_of(few[0]), shape_of(many[0])}
    assert 0.15 < kinds[shape_of(few[0])] / len(NAMES) < 0.25


def test_a_decoy_stays_and_is_that_of_its_user_mechanism_and_cluster():
    decoys = Decoys([stored("alice"), stored("carol", 4096)])
    other_order = Decoys([stored("carol", 4096), stored("alice")])
    assert [made(decoys, name) for name in NAMES] == [made(other_order, name) for name in NAMES]
    salts = [
        made(decoys, "bob").salt,
        made(decoys, "bob", SHA_512).salt,
        made(decoys, "bob", secret=b"x").salt,
    ]
    assert len(set(salts)) == 3


def test_a_new_user_changes_few_decoys():
    """A name whose challenge changed with another user's would be known to be unknown."""
    users = [stored(f"a{number}", 4096 + number % 4) for number in range(40)]
    earlier, later = Decoys(users), Decoys([*users, stored("new", 4096)])
    before = [made(earlier, name) for name in NAMES]
    after = [made(later, name) for name in NAMES]
    assert sum(one != two for one, two in zip(before, after, strict=True)) < len(NAMES) / 20


def test_other_mechanisms_do_not_matter():
    assert shape_of(made(Decoys([stored("alice", 4096, mechanism=SHA_512)]), "bob")) == SaltShape(DEFAULT)
