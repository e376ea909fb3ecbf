"""`millpond pipeline merge | compact | retain | verify`: the maintenance that brokers do too, on Spark, for a
backlog."""

import click

from millpond.cli.options import as_bytes
from millpond.cli.pipelines.common import Choices, job_of, pipeline_options, show, topics_argument

EXIT_DAMAGED = 1

trust_clock_option = click.option(
    "--trust-clock",
    is_flag=True,
    help="Expire by age although the wall clock jumped: you have checked that it is right.",
)


@click.command(epilog="\b\nExample:\n  millpond pipeline merge orders 'clicks-*'")
@topics_argument
@pipeline_options
def merge(topics: tuple[str, ...], choices: Choices) -> None:
    """Merge small extents into segments, in the named topics or in all. Bytes are copied; nothing is decoded."""
    from millpond.spark.pipelines import merge as pipeline

    with job_of(choices) as job:
        request = pipeline.MergeRequest(topics=topics)
        report = pipeline.run(job, request)
    show(report, choices, title="Merged")


@click.command(epilog="\b\nExample:\n  millpond pipeline compact customers --force")
@topics_argument
@click.option("--force", is_flag=True, help="Compact even if little was written since the last run.")
@click.option(
    "--keys-memory",
    metavar="SIZE",
    default="256MiB",
    show_default=True,
    callback=as_bytes,
    help="Maximum memory for the keys of one partition; more keys take several passes.",
)
@trust_clock_option
@pipeline_options
def compact(
    topics: tuple[str, ...], force: bool, keys_memory: int, trust_clock: bool, choices: Choices
) -> None:
    """Keep the latest record of each key, in the named topics with cleanup.policy=compact or in all of them."""
    from millpond.spark.pipelines import compact as pipeline

    request = pipeline.CompactRequest(
        topics=topics, force=force, keys_bytes_max=keys_memory, trust_clock=trust_clock
    )
    with job_of(choices) as job:
        report = pipeline.run(job, request)
    show(report, choices, title="Compacted")


@click.command(epilog="\b\nExample:\n  millpond pipeline retain --dry-run")
@topics_argument
@trust_clock_option
@pipeline_options
def retain(topics: tuple[str, ...], trust_clock: bool, choices: Choices) -> None:
    """Delete records that exceed the retention of their topic, by age and by size."""
    from millpond.spark.pipelines import retain as pipeline

    with job_of(choices) as job:
        request = pipeline.RetainRequest(topics=topics, trust_clock=trust_clock)
        report = pipeline.run(job, request)
    show(report, choices, title="Expired")


@click.command(
    epilog="\b\nExit code 1 if anything is lost or damaged.\n\n\b\nExample:\n  millpond pipeline verify --json"
)
@topics_argument
@pipeline_options
def verify(topics: tuple[str, ...], choices: Choices) -> None:
    """Read everything and check it: objects exist, checksums match, no offset is missing. Changes nothing."""
    from millpond.spark.pipelines import verify as pipeline

    with job_of(choices) as job:
        request = pipeline.VerifyRequest(topics=topics)
        report = pipeline.run(job, request)
    show(report, choices, title="Verified")
    if report.get("state") == "damaged":
        raise SystemExit(EXIT_DAMAGED)
