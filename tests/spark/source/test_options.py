"""Option by option: names, precedence, defaults, and what is refused. Nothing is opened for it."""

import pytest

from millpond.model.errors import InvalidSettings
from millpond.spark.source.offsets import EARLIEST, LATEST, NamedPartition, from_json, to_json
from millpond.spark.source.options import Isolation, Unmatched, check_batch, check_stream, parse_options

ORDERS_0, ORDERS_1 = NamedPartition("orders", 0), NamedPartition("orders", 1)


def parse(**given: object):
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    if not {"assign", "subscribe", "subscribePattern"} & named.keys():
        named["subscribe"] = "orders"
    return parse_options({"path": "/data", **named})


def refusal(**given: object) -> str:
    with pytest.raises(InvalidSettings) as refused:
        parse(**given)
    return str(refused.value)


def test_the_defaults_are_those_of_kafkas_source():
    options = parse()
    assert options.starting is None
    assert options.ending is None
    assert options.isolation is Isolation.UNCOMMITTED
    assert options.unmatched is Unmatched.ERROR
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.trigger_delay_max_ms == 15 * 60_000
    assert options.min_partitions is options.offsets_per_trigger_max is options.group is None


def test_names_are_matched_in_any_case():
    options = parse_options(
        {
            "PATH": "/data",
            "SUBSCRIBE": "a",
            "MAXOFFSETSPERTRIGGER": "7",
            "Kafka.Isolation.Level": "READ_COMMITTED",
        }
    )
    assert options.offsets_per_trigger_max == 7
    assert options.committed_only


@pytest.mark.parametrize(
    ("given", "assigned", "topics", "pattern"),
    [
        ({"assign": '{"orders":[1,0]}'}, (ORDERS_0, ORDERS_1), (), ""),
        ({"subscribe": " b , a,b,"}, (), ("b", "a"), ""),
        ({"subscribePattern": "or.*"}, (), (), "or.*"),
    ],
)
def test_there_are_three_ways_to_say_what_to_read(given, assigned, topics, pattern):
    found = parse(**given).subscription
    assert (found.assigned, found.topics, found.pattern) == (assigned, topics, pattern)


def test_exactly_one_subscription_is_needed():
    assert "exactly one" in refusal(subscribe="a", subscribePattern="b")
    with pytest.raises(InvalidSettings, match="exactly one"):
        parse_options({"path": "/data"})


@pytest.mark.parametrize(
    "given",
    [
        {"assign": "orders"},
        {"assign": "{}"},
        {"assign": '{"orders":[]}'},
        {"assign": '{"orders":["0"]}'},
        {"assign": '{"orders":[-1]}'},
        {"assign": '{"orders":0}'},
        {"subscribe": " , "},
        {"subscribePattern": ""},
        {"subscribePattern": "("},
        {"startingOffsets": "erliest"},
        {"startingOffsets": '{"orders":{"0":-3}}'},
        {"startingOffsets": '{"orders":{"x":3}}'},
        {"startingOffsets": '{"orders":{"0":"3"}}'},
        {"startingOffsets": '{"orders":{"0":3}'},
        {"startingOffsets": "[]"},
        {"startingOffsets": "group:"},
        {"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "10m"},
        {"startingTimestamp": "-10"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"failOnDataLoss": "maybe"},
        {"includeHeaders": "1"},
        {"minPartitions": "0"},
        {"minPartitions": "many"},
        {"maxRecordsPerPartition": "0"},
        {"maxOffsetsPerTrigger": "-5"},
        {"minOffsetsPerTrigger": "1.5"},
        {"maxTriggerDelay": "soon"},
        {"maxBytesPerTrigger": "much"},
        {"maxBytesPerTrigger": "0"},
        {"kafka__isolation__level": "serializable"},
    ],
)
def test_a_value_that_means_nothing_is_refused_with_the_options_name(given):
    name = next(iter(given)).replace("__", ".")
    assert f"Option {name} cannot be" in refusal(**given)


def test_an_option_that_nobody_knows_is_refused_with_the_nearest_names():
    assert "did you mean startingOffsets" in refusal(startingOffset="earliest")
    assert "maxOffsetsPerTrigger" in refusal(maxOffsetPerTrigger=5)
    assert refusal(zzz="1") == "There is no option 'zzz'"


@pytest.mark.parametrize("name", ["auto__offset__reset", "key__deserializer", "value__deserializer"])
def test_kafka_options_that_sparks_source_refuses_are_refused(name):
    assert name.replace("__", ".") in refusal(**{f"kafka__{name}": "x"})


def test_what_tunes_a_consumer_has_no_effect():
    given = {
        "kafka.bootstrap.servers": "nowhere:9092",
        "kafka.group.id": "g",
        "kafka.max.poll.records": "5",
        "groupIdPrefix": "spark",
        "kafkaConsumer.pollTimeoutMs": "512",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
    }
    assert parse_options({"path": "/data", "subscribe": "orders", **given}) == parse()


def test_a_time_for_all_wins_over_times_which_win_over_offsets():
    times, offsets = '{"orders":{"0":5}}', '{"orders":{"0":7}}'
    three = {"startingTimestamp": "9", "startingOffsetsByTimestamp": times, "startingOffsets": offsets}
    assert parse(**three).starting.time_ms == 9
    del three["startingTimestamp"]
    assert parse(**three).starting.times == {ORDERS_0: 5}
    del three["startingOffsetsByTimestamp"]
    assert parse(**three).starting.offsets == {ORDERS_0: 7}
    three = {"endingTimestamp": "9", "endingOffsetsByTimestamp": times, "endingOffsets": offsets}
    assert parse(**three).ending.time_ms == 9
    del three["endingTimestamp"]
    assert parse(**three).ending.times == {ORDERS_0: 5}
    del three["endingOffsetsByTimestamp"]
    assert parse(**three).ending.offsets == {ORDERS_0: 7}


def test_where_to_start_may_be_a_word_a_group_or_a_time_ago():
    assert parse(startingOffsets="Earliest").starting.all_partitions == EARLIEST
    assert parse(startingOffsets="latest").starting.all_partitions == LATEST
    assert parse(startingOffsets="group:My:Group").starting.group == "My:Group"
    assert parse(startingTimestamp="-1h30m").starting.ago_ms == 90 * 60_000
    assert parse(startingOffsets='{"orders":{"0":-2,"1":-1}}').starting.offsets == {
        ORDERS_0: EARLIEST,
        ORDERS_1: LATEST,
    }


def test_limits_are_numbers_durations_and_sizes():
    options = parse(
        maxBytesPerTrigger="8MiB",
        maxTriggerDelay="90s",
        minOffsetsPerTrigger=3,
        minPartitions=4,
        maxRecordsPerPartition=5,
    )
    assert options.bytes_per_trigger_max == 8 * 2**20
    assert options.trigger_delay_max_ms == 90_000
    assert options.offsets_per_trigger_min == 3
    assert (options.min_partitions, options.records_per_partition_max) == (4, 5)
    assert parse(maxTriggerDelay="2min").trigger_delay_max_ms == 120_000
    assert parse(maxTriggerDelay="250").trigger_delay_max_ms == 250


def test_the_least_of_a_trigger_cannot_be_more_than_the_most():
    assert "maxOffsetsPerTrigger is only 5" in refusal(minOffsetsPerTrigger=6, maxOffsetsPerTrigger=5)


def test_the_place_is_needed():
    with pytest.raises(InvalidSettings, match="say where the data is"):
        parse_options({"subscribe": "orders"})


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"orders":{"0":-2}}'},
        {"endingOffsets": "group:g"},
        {"commitOffsetsToGroup": "g"},
        {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
        {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":6}}'},
        {
            "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
            "endingOffsetsByTimestamp": '{"orders":{"0":4}}',
        },
    ],
)
def test_a_batch_goes_forward_from_a_place_that_is_known(given):
    with pytest.raises(InvalidSettings):
        check_batch(parse(**given))
    check_batch(parse(startingOffsets='{"orders":{"0":5}}', endingOffsets='{"orders":{"0":-1}}'))


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    value = {"endingOffsets": "latest", "endingOffsetsByTimestamp": "{}", "endingTimestamp": "5"}[name]
    with pytest.raises(InvalidSettings, match="a stream has no end"):
        check_stream(parse(**{name: value}))


def test_offsets_are_written_in_sparks_order():
    offsets = {NamedPartition("b", 0): 1, NamedPartition("a", 10): 2, NamedPartition("a", 9): 3}
    assert list(to_json(offsets)) == ["a", "b"]
    assert list(to_json(offsets)["a"]) == ["9", "10"]
    assert from_json(to_json(offsets)) == offsets
