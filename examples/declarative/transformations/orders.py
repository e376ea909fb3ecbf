"""Reads orders from a topic: a table of all orders, a total for each customer, and the large orders to
another topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

DATA = os.environ["MILLPOND_DATA"]
LARGE = 100


@dp.table
def orders() -> DataFrame:
    """Every order once, as it arrives."""
    spark = SparkSession.active()
    raw = (
        spark.readStream.format("millpond")
        .option("path", DATA)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = f.from_json(f.col("value").cast("string"), "customer STRING, amount INT")
    return raw.select("offset", "timestamp", parsed.alias("order")).select("offset", "timestamp", "order.*")


@dp.materialized_view
def customers() -> DataFrame:
    """The total of each customer's orders so far."""
    return SparkSession.active().read.table("orders").groupBy("customer").agg(f.sum("amount").alias("total"))


dp.create_sink("large_orders", "millpond", {"path": DATA, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Large orders, exactly once, to a separate topic."""
    found = SparkSession.active().readStream.table("orders").where(f.col("amount") >= LARGE)
    return found.select(f.col("customer").alias("key"), f.col("amount").cast("string").alias("value"))
