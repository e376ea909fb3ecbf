"""An S3 of our own, in this process, for tests that need a broker on one: moto.

Credentials are in the environment, as a broker in production has them.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import boto3
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

BUCKET = "millpond-tests"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}

_putting = threading.Lock()
_put_object = S3Response.put_object


@wraps(_put_object)
def _put_one_at_a_time(response: S3Response) -> Any:
    """S3 lets one of many win who put only if there is nothing (`If-None-Match`). moto looks and puts in two steps,
    and lets two win who do it at once."""
    with _putting:
        return _put_object(response)


@contextmanager
def running_s3() -> Iterator[str]:
    """The URL of its bucket, as the setting `storage` takes it with a prefix before the `?`."""
    with running_moto(BUCKET) as endpoint:
        yield f"s3://{BUCKET}/{{prefix}}?endpoint={endpoint}&region={REGION}"


@contextmanager
def running_moto(bucket: str) -> Iterator[str]:
    """The address of a server with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    S3Response.put_object = _put_one_at_a_time
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _make_bucket(endpoint, bucket)
        yield endpoint
    finally:
        server.stop()


def _make_bucket(endpoint: str, bucket: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=bucket)
    client.close()
