"""Every kind of store the contract suite runs over, each fresh and empty for each test.

`MILLPOND_TEST_S3_ENDPOINT` (with the usual AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) runs the S3 cases against
a real server, such as MinIO, instead of moto.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.s3 import running_moto

from millpond.model.ids import Session, new_session
from millpond.objects.file_store import FileStore
from millpond.objects.instrumented import Instrumented
from millpond.objects.memory import MemoryStore
from millpond.objects.remote import RemoteStore
from millpond.objects.retrying import Retrying, RetryPolicy
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import Metrics
from millpond.testing.faults import Faults, FaultyStore

BUCKET = "millpond-contract"
ENDPOINT_VARIABLE = "MILLPOND_TEST_S3_ENDPOINT"
ERROR_RATE = 0.2
prefixes = itertools.count()

Open = Callable[[Session], ObjectStore]


@pytest.fixture(scope="session")
def s3_config() -> Iterator[dict[str, str]]:
    config = {
        "region": "us-east-1",
        "access_key_id": os.environ.get("AWS_ACCESS_KEY_ID", "minioadmin"),
        "secret_access_key": os.environ.get("AWS_SECRET_ACCESS_KEY", "minioadmin"),
    }
    if endpoint := os.environ.get(ENDPOINT_VARIABLE):
        make_bucket(endpoint, config)
        yield {**config, "endpoint": endpoint}
        return
    with running_moto(BUCKET) as endpoint:
        yield {**config, "endpoint": endpoint}


def make_bucket(endpoint: str, config: dict[str, str]) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=config["region"],
        aws_access_key_id=config["access_key_id"],
        aws_secret_access_key=config["secret_access_key"],
    )
    try:
        client.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
    finally:
        client.close()


def retrying(store: ObjectStore) -> ObjectStore:
    """The wrapped store loses one call in five, half of them after they were applied, and nobody may notice."""
    faulty = FaultyStore(store, Faults(error_rate=ERROR_RATE, random=Random(7)))
    return Retrying(faulty, RetryPolicy(attempts_max=50), random=Random(7), sleep=lambda _: None)


def instrumented(store: ObjectStore) -> ObjectStore:
    return Instrumented(store, Metrics().store)


KINDS = {
    "memory": ("memory", None),
    "file": ("file", None),
    "s3": ("s3", None),
    "retrying-memory": ("memory", retrying),
    "retrying-file": ("file", retrying),
    "retrying-s3": ("s3", retrying),
    "instrumented-file": ("file", instrumented),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens stores over one place, for several sessions."""
    base, wrap = KINDS[kind]
    url = f"s3://{BUCKET}/run-{new_session()}-{next(prefixes)}"
    opened: list[ObjectStore] = []

    def open_one(session: Session) -> ObjectStore:
        store: ObjectStore
        if base == "memory":
            store = MemoryStore(session)
        elif base == "file":
            store = FileStore(tmp_path / "data", session, roll_bytes=100_000)
        else:
            store = RemoteStore(url, session, config=request.getfixturevalue("s3_config"))
        opened.append(store if wrap is None else wrap(store))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def session() -> Session:
    return new_session()


@pytest.fixture
def store(open_store: Open, session: Session) -> ObjectStore:
    return open_store(session)
