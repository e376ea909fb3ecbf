"""Spark's own Kafka source and sink against a broker: `python run.py HOST:PORT PREFIX FOLDER` runs every
scenario in one session and prints one line of JSON, which maps each scenario to its result or its error.
Needs pyspark, and the connector's jars in `PEERS_SPARK_JARS`."""
# ruff: noqa: BLE001  # an error is the result of a scenario

import json
import os
import socket
import struct
import sys
import time

from pyspark.sql import DataFrame, SparkSession

address, prefix, folder = sys.argv[1:4]
STREAM_SECONDS_MAX = 90


def session():
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("millpond-peer")
        .config("spark.jars", os.environ["PEERS_SPARK_JARS"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", os.path.join(folder, "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


spark = session()


def write(topic, rows, **options):
    """Write rows of key and value."""
    frame = spark.createDataFrame(rows, "key string, value string")
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic)
    writer.options(**options).save()


def reader(topic, **options):
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    return source.options(**options).load()


def seen(frame: DataFrame):
    rows = frame.selectExpr("partition", "offset", "cast(key as string) key", "cast(value as string) value")
    return sorted([row.partition, row.offset, row.key, row.value] for row in rows.collect())


def sink_and_batch_source():
    topic = f"{prefix}-batch"
    write(topic, [("a", "1"), ("b", "2"), (None, "3")])
    return {"values": sorted(row[3] for row in seen(reader(topic)))}


def batch_source_between_offsets():
    topic = f"{prefix}-between"
    write(topic, [("k", str(number)) for number in range(10)], **{"kafka.linger.ms": "50"})
    start, end = json.dumps({topic: {"0": 3}}), json.dumps({topic: {"0": 6}})
    rows = seen(reader(topic, startingOffsets=start, endingOffsets=end))
    return {"offsets": [row[1] for row in rows]}


def batch_source_by_timestamp():
    topic = f"{prefix}-timestamp"
    write(topic, [("k", "before")])
    time.sleep(1.5)
    between = int(time.time() * 1000) - 700
    write(topic, [("k", "after")])
    at = json.dumps({topic: {"0": between}})
    from_then = seen(reader(topic, startingOffsetsByTimestamp=at))
    until_then = seen(reader(topic, endingOffsetsByTimestamp=at))
    everywhere = seen(reader(topic, startingTimestamp=str(between)))
    return {name: [row[3] for row in rows] for name, rows in _named(from_then, until_then, everywhere)}


def _named(*rows):
    return zip(("from", "until", "global"), rows, strict=True)


def headers():
    topic = f"{prefix}-headers"
    frame = spark.sql(
        "select 'v' value, array(named_struct('key', 'h', 'value', cast('1' as binary))) headers"
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic).save()
    row = reader(topic, includeHeaders="true").collect()[0]
    return {"headers": [[each.key, bytes(each.value).decode()] for each in row.headers]}


def run_stream(topic, name, **options):
    """Process everything available once, into a folder of JSON files. A second call continues where the first
    ended."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    frame = source.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
    out = os.path.join(folder, name)
    query = (
        frame.selectExpr("cast(value as string) value", "offset")
        .writeStream.format("json")
        .option("path", out)
        .option("checkpointLocation", out + "-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_SECONDS_MAX):
        query.stop()
        raise TimeoutError("the stream did not end")
    return sorted(row.value for row in spark.read.schema("value string").json(out).collect())


def stream_of_what_is_available():
    topic = f"{prefix}-stream"
    write(topic, [("k", "1"), ("k", "2")])
    first = run_stream(topic, "stream", maxOffsetsPerTrigger="1")
    write(topic, [("k", "3")])
    return {"first": first, "then": run_stream(topic, "stream", maxOffsetsPerTrigger="1")}


def stream_into_the_sink():
    source, target = f"{prefix}-from", f"{prefix}-to"
    write(source, [("k", "a"), ("k", "b")])
    frame = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    query = (
        frame.option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("key", "upper(cast(value as string)) value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("topic", target)
        .option("checkpointLocation", os.path.join(folder, "sink-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(STREAM_SECONDS_MAX)
    return {"values": sorted(row[3] for row in seen(reader(target)))}


def delete_records(topic, offset):
    """DeleteRecords v0, encoded by hand, because Spark has no admin API."""
    name = topic.encode()
    wanted = struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, offset, 10_000)
    frame = struct.pack(">hhih", 21, 0, 1, -1) + wanted
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = answers.read(*struct.unpack(">i", answers.read(4)))
    (error,) = struct.unpack(">h", answer[-2:])
    assert error == 0, error


def data_loss():
    """A stream whose records were deleted continues with failOnDataLoss=false, and fails with true."""
    outcomes = {}
    for name, fails in (("tolerated", "false"), ("refused", "true")):
        topic = f"{prefix}-loss-{name}"
        write(topic, [("k", "1")])
        run_stream(topic, name)
        write(topic, [("k", "2"), ("k", "3")])
        delete_records(topic, 2)
        try:
            outcomes[name] = run_stream(topic, name, failOnDataLoss=fails)
        except Exception as error:
            outcomes[name] = "failed" if "data" in str(error).lower() else str(error)[:500]
    return outcomes


def many_partitions():
    topics = f"{prefix}-many-a", f"{prefix}-many-b"
    for topic in topics:
        write(topic, [(str(number), str(number)) for number in range(200)])
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    frame = source.option("subscribePattern", f"{prefix}-many-.*").option("minPartitions", "6").load()
    return {"count": frame.count(), "tasks": frame.rdd.getNumPartitions() >= 6}


SCENARIOS = (
    *(sink_and_batch_source, batch_source_between_offsets, batch_source_by_timestamp, headers),
    *(stream_of_what_is_available, stream_into_the_sink, data_loss, many_partitions),
)


def outcome(scenario):
    try:
        return scenario()
    except Exception as error:
        return {"error": str(error)[:2000]}


print(json.dumps({scenario.__name__: outcome(scenario) for scenario in SCENARIOS}), flush=True)
spark.stop()
