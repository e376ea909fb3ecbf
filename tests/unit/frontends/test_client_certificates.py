"""A client certificate is a proof over HTTP and gRPC, if the request has no other."""

import asyncio
import functools
import ssl

import grpc
import grpc.aio._server as aio_server
import httpx
import pytest
from tests.unit.frontends.rpc.wire import Wire
from tests.unit.frontends.secured import TOPIC, secured_broker
from tests.unit.security.x509_certificates import pem_files

from millpond.stubs import admin_pb2

NAME = "CN=localhost"


@pytest.fixture
def files(tmp_path):
    """A certificate that signs itself is the one of the server, of the client and of the authority."""
    return pem_files(tmp_path)


async def test_a_client_certificate_is_a_proof_over_http(files, monkeypatch):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files[0])
    context.load_cert_chain(*files)
    context.verify_mode = ssl.CERT_OPTIONAL
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_server", functools.partial(loop.create_server, ssl=context))
    async with secured_broker(http=True) as secured:
        await secured.allow(NAME, f"DESCRIBE T {TOPIC}")
        trusting = ssl.create_default_context(cafile=files[0])
        url = f"https://{secured.broker.listeners['http']}"
        async with httpx.AsyncClient(base_url=url, verify=trusting, timeout=60) as client:
            assert (await client.get("/topics")).status_code == 401
        trusting = ssl.create_default_context(cafile=files[0])
        trusting.load_cert_chain(*files)
        async with httpx.AsyncClient(base_url=url, verify=trusting, timeout=60) as client:
            assert [each["name"] for each in (await client.get("/topics")).json()["topics"]] == [TOPIC]
            assert (await client.get("/metrics")).status_code == 403
            other = {"authorization": await secured.user("DESCRIBE C")}
            assert (await client.get("/metrics", headers=other)).status_code == 200
            assert (await client.get("/topics", headers={"authorization": "Bearer x"})).status_code == 401


async def test_a_client_certificate_is_a_proof_over_grpc(files, monkeypatch):
    chain, key = (each.read_bytes() for each in files)
    credentials = grpc.ssl_server_credentials([(key, chain)], chain, require_client_auth=True)
    monkeypatch.setattr(
        aio_server.Server,
        "add_insecure_port",
        lambda self, address: self.add_secure_port(address, credentials),
    )
    async with secured_broker(grpc=True) as secured:
        await secured.allow(NAME, f"DESCRIBE T {TOPIC}")
        proof = grpc.ssl_channel_credentials(chain, key, chain)
        async with grpc.aio.secure_channel(secured.broker.listeners["grpc"], proof) as channel:
            wire, request = Wire(channel), admin_pb2.ListTopicsRequest()
            assert [each.name for each in (await wire("Admin.ListTopics", request)).topics] == [TOPIC]
            other = [("authorization", await secured.user())]
            assert not (await wire("Admin.ListTopics", request, metadata=other)).topics
            wrong = wire("Admin.ListTopics", request, metadata=[("authorization", "Bearer x")])
            assert await wrong.code() is grpc.StatusCode.UNAUTHENTICATED
