"""Every shell line of the seeds' documents is in `docs/seeds.md`, and what is said to work as typed is run.

As typed apart from the ports and the directory in /tmp, so that tests can run side by side.
"""

import contextlib
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.seeds.processes import PATIENCE_SECONDS, Server, Talker, environment, eventually

PAGE = (Path(__file__).parents[2] / "docs/seeds.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MINIKAFKA = (
    "go get google.golang.org/grpc",
    "go get github.com/peterhoward42/minikafka",
    'export MINIKAFKA_HOST=":9999"',
    'export MINIKAFKA_RETENTIONTIME="10s"',
    'export MINIKAFKA_ROOT_DIR="/tmp/minikafka"',
    "mkfk-server",
    "mkfk-producer -host localhost:999 -topic topic_foo",
    "mkfk-consumer -host localhost:999 -topic topic_foo",
)
LOCAL_KAFKA = (
    """curl -X POST http://localhost:8000/topics -H "Content-Type: application/json" -d '{"name":"hello"}'""",
    'CURL -X POST http://localhost:8123/topics/hello/produce/0 -d "key:value"',
    "nvm use 18.18",
    "pnpm install",
    "pnpm run start",
    "pnpm run start:dev",
    "pnpm run start:prod",
    "pnpm run test",
    "pnpm run test:e2e",
    "pnpm run test:cov",
)
SERVER, PRODUCER, CONSUMER = ("\n".join(MINIKAFKA[2:6]), MINIKAFKA[6], MINIKAFKA[7])


def shell(script, **options):
    """A shell that somebody types into; what it runs takes its place at the end, so that it can be ended."""
    lines = script.strip().splitlines()
    return Talker("sh", "-c", "\n".join([*lines[:-1], f"exec {lines[-1]}"]), **options)


@pytest.fixture
def here(tmp_path):
    """A line with a port and a directory of this test's own."""
    port = free_port()
    return lambda line: re.sub(r":9{3,4}\b", f":{port}", line).replace(
        "/tmp/minikafka", str(tmp_path / "minikafka")
    )


@pytest.mark.parametrize("line", [*MINIKAFKA, *LOCAL_KAFKA])
def test_s25_every_line_of_the_documents_is_on_the_page(line):
    assert f"| `{line}` |" in PAGE


def test_s10_s11_the_lines_of_minikafka_work_as_typed(here):
    with contextlib.ExitStack() as shells:
        server = shells.enter_context(shell(here(SERVER)))
        server.hear("is ready")
        consumer = shells.enter_context(shell(here(CONSUMER)))
        producer = shells.enter_context(shell(here(PRODUCER), stdin=subprocess.PIPE))
        producer.enter("each line of text\nyou enter\n")
        producer.hear("sent message 2")
        producer.end_of_input()
        assert producer.wait() == 0
        consumer.hear("each line of text")
        consumer.hear("you enter")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_s6_the_messages_only_live_for_as_long_as_the_document_says(here):
    """With a shorter time than its ten seconds: a consumer that comes later gets nothing."""
    with shell(here(SERVER).replace("10s", "300ms")) as server:
        server.hear("is ready")
        typed = subprocess.run(
            ["sh", "-c", f"echo gone soon | {here(PRODUCER)}"],
            env=environment(),
            check=True,
            capture_output=True,
        )
        assert typed.stdout == b"sent message 1\n"

        def finds_nothing():
            with shell(here(CONSUMER)) as consumer:
                return "reading on from 1" in consumer.hear("got")

        eventually(finds_nothing, "it has expired")


def test_s10_the_blocks_of_the_page_are_the_lines_of_the_document_with_one_port():
    wanted = [SERVER, PRODUCER.replace(":999", ":9999"), CONSUMER.replace(":999", ":9999")]
    assert [block.strip() for block in BLOCKS[:3]] == wanted


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines are curl's")
def test_s16_s17_the_lines_of_the_local_kafka_service_work_as_typed(tmp_path):
    with Server(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        answers = []
        for line in [*LOCAL_KAFKA[:2], BLOCKS[3].strip().splitlines()[-1]]:
            typed = re.sub(r":8\d{3}/", f":{port}/", line).replace("CURL", "curl")
            done = subprocess.run(
                ["sh", "-c", typed.replace("curl ", "curl -sS --noproxy '*' ")],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=True,
            )
            answers.append(done.stdout)
    assert '"partitions":100' in answers[0].replace(" ", "")
    assert '"offset":0' in answers[1].replace(" ", "")
    assert "value" in answers[2]


def test_s16_s17_the_block_of_the_page_is_what_the_document_means():
    create, produce, _ = BLOCKS[3].strip().splitlines()
    assert create == LOCAL_KAFKA[0]
    assert produce == LOCAL_KAFKA[1].replace("CURL", "curl").replace("8123", "8000")
