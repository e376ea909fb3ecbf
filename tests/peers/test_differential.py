"""Apache Kafka and Millpond, asked the same questions: every answer is the same, or the table says why not.

The questions are in `differential/`; what Kafka answers can be read with
`python -m tests.peers.differential HOST:PORT`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.peers.conftest import millpond_server
from tests.peers.differential.comparing import differences, explained, unused
from tests.peers.differential.observing import observe
from tests.peers.differential.subject import PROBES

EXPECTED_DIFFERENCES: dict[str, str] = {
    # What Kafka has and Millpond has not
    "api_versions_keys/* (absent)": "Millpond answers fewer APIs.",
    "api_versions_keys/35": "DescribeLogDirs is answered up to v4.",
    "api_versions_features/* (absent)": "Features of KRaft, share groups and Streams groups are not offered.",
    "describe_configs_of_the_broker/cluster-wide*": "There are no defaults of a cluster beside those of a broker.",
    "describe_configs_of_the_broker/values/log.retention.*": "Retention has one setting, in milliseconds.",
    "describe_configs_of_the_broker/values/*/1": "A broker's settings stay as they are while it runs.",
    "fetch_sessions/full/session": "Sessions are declined, as the protocol allows: every fetch is a full one.",
    **{
        f"fetch_sessions/{step}/*": "There is no session to go on with."
        for step in ("moved on", "nothing new", "something new", "another topic", "forgotten", "wrong epoch")
    },
    "describe_configs_of_what_is_not_there/unknown group/*": "Groups have no settings of their own.",
    "log_dirs/asked/results/0/*_bytes": "There is no disk to speak of when the store is S3.",
    "create_with_names_that_are_not_allowed/__consumer_offsets*": "Groups are kept in the catalog: no such topic.",
    "produce_to_what_is_not_there/an internal topic/error_code": "Groups are kept in the catalog: no such topic.",
    # Replicas are the store's business
    "create_with_counts_that_are_not_allowed/1, [23]/*": "Any replication factor is taken.",
    "create_with_assignments/broker twice/*": "An assignment only says how many partitions there are.",
    "create_with_assignments/unknown broker/*": "An assignment only says how many partitions there are.",
    "grow_a_topic_with_assignments/unknown broker/*": "An assignment only says how many partitions there are.",
    # Where Kafka answers UNKNOWN_SERVER_ERROR, or not at all, because nobody thought of the question
    "alter_configs_that_are_refused/unknown operation/error_code": "Kafka fails; the request is invalid.",
    "grow_a_topic/far too many/error_code": "Kafka fails; the count is invalid.",
    "metadata_by_topic_id/neither/*/error_code": "Kafka fails; the request is invalid.",
    "produce_batches_that_are_wrong/null*": "Kafka does not answer at all.",
    "produce_batches_that_are_wrong/unknown codec/error_code": "Kafka fails; the codec is not supported.",
    # Where Millpond is more lenient, or does not look
    "produce_batches_that_are_wrong/two batches/*": "Kafka takes one batch per partition; so do its clients.",
    "produce_batches_that_are_wrong/codec that is not used/*": "Batches are not unpacked when they are taken.",
    "produce_batches_that_are_wrong/a base offset/*": "What a client says the offset is does not matter.",
    "produce_the_same_partition_twice_in_one_request/*": "Kafka drops one of the two without a word.",
    # Where Millpond is stricter
    "produce_batches_that_are_wrong/append time by the client/*": "Only the broker gives an append time.",
    "create_with_settings_that_are_not_allowed/empty policy/*": "A topic has a policy.",
    # Where ours is the same thing said otherwise
    "delete_the_same_twice_in_one_request/by name and by id/responses/0/topic_id": "It was given by name, too.",
    "describe_configs_of_a_topic/min.insync.replicas/1": "Kafka sets its default for the whole cluster.",
    "describe_configs_with_synonyms/0/synonyms*": "Millpond also tells the default that the topic's value hides.",
    "create_only_to_check/id": "What was not made has no id.",
    "metadata_creates_a_topic_if_it_may/first": "Kafka creates it later, and asks to come again.",
    "fetch_what_is_not_there/*/aborted_transactions": "Null and empty mean the same where nothing was read.",
    "idempotent_*again/log_append_time_ms": "A duplicate is answered as the first was.",
    "transactions_out_of_turn/send of another epoch/0": "Refused either way; ours looks at the sequence first.",
    "transactions_in_the_newer_way/abort with the old epoch/error_code": "An old epoch is fenced, whatever it asks.",
    "a_transactional_batch_without_a_transaction/an id nobody has/error_code": "It has no open transaction.",
    "idempotent_epochs/*/error_code": "An epoch of -1 is no epoch: the batch is not valid.",
    "create_with_a_great_many_partitions/error_code": "There is no policy, but a limit.",
    "alter_configs_that_are_refused/*/error_code": "An empty name is no name of a topic.",
    "a_producer_that_is_fenced/epochs/1": "Kafka counts the abort of the older producer too.",
    "a_transaction_commits/open, uncommitted/last_stable_offset": "Told to those who read committed messages.",
}
"""Path to reason. A path ends at a single value; `*` stands for anything."""


@pytest.fixture(scope="module")
def of_kafka(kafka_bootstrap: str) -> dict[str, Any]:
    return observe(kafka_bootstrap)


@pytest.fixture(scope="module")
def of_millpond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with millpond_server(tmp_path_factory.mktemp("millpond")) as address:
        yield observe(address)


@pytest.mark.peers
@pytest.mark.parametrize("probe", PROBES)
def test_millpond_answers_as_kafka_does(
    probe: str, of_kafka: dict[str, Any], of_millpond: dict[str, Any]
) -> None:
    found = differences({probe: of_kafka[probe]}, {probe: of_millpond[probe]})
    assert [str(each) for each in found if not explained(each, EXPECTED_DIFFERENCES)] == []


@pytest.mark.peers
def test_every_explanation_still_explains_something(
    of_kafka: dict[str, Any], of_millpond: dict[str, Any]
) -> None:
    assert unused(EXPECTED_DIFFERENCES, differences(of_kafka, of_millpond)) == []


@pytest.mark.peers
@pytest.mark.parametrize("probe", PROBES)
def test_every_probe_comes_to_its_end_on_kafka(probe: str, of_kafka: dict[str, Any]) -> None:
    """A probe that fails there asks for something that Kafka does not do."""
    assert "probe failed" not in of_kafka[probe]
