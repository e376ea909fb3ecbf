"""PostgreSQL and S3 for the brokers of compose.yaml."""

import logging
import secrets
from urllib.parse import urlsplit

import boto3
import psycopg
import pytest
from moto.server import ThreadedMotoServer
from tests.deploy.cluster import Cluster
from tests.deploy.composition import BROKERS, environment


@pytest.fixture(scope="module")
def catalog(postgres_url):
    """A database of its own on the tests' server."""
    name = f"deploy_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield postgres_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="module")
def s3():
    """A server with the bucket that the file's brokers use."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url, given = f"http://{host}:{port}", environment(BROKERS[0])
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=urlsplit(given["MILLPOND_STORE"]).netloc)
    client.close()
    yield url
    server.stop()


@pytest.fixture(scope="module")
def processes(tmp_path_factory, catalog, s3):
    with Cluster(tmp_path_factory.mktemp("cluster"), catalog=catalog, s3=s3) as cluster:
        yield cluster


@pytest.fixture
def cluster(processes):
    """All of them running, whatever the test before this one left behind."""
    for broker in processes.brokers:
        if not broker.is_running:
            broker.start()
    return processes
