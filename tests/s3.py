"""An S3 of our own, in this process, for tests that need a broker on one: moto, with one bucket.

Credentials are in the environment, as a broker in production has them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "millpond-tests"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@contextmanager
def running_s3() -> Iterator[str]:
    """The URL of its bucket, as the setting `store` takes it with a prefix before the `?`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _make_bucket(endpoint)
        yield f"s3://{BUCKET}/{{prefix}}?endpoint={endpoint}&region={REGION}"
    finally:
        server.stop()


def _make_bucket(endpoint: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
