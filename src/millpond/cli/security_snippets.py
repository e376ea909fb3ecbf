"""What `millpond security init` prints: how to start the broker, and how each kind of client connects to it.

Every block can be pasted into a shell as it is, in the order in which they are printed. None of them has the password
in the options of a command, where other users of the machine could see it. A test runs them.
"""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

from millpond.model.addresses import split_address

if TYPE_CHECKING:
    from millpond.settings import Settings

ADMIN: Final = "admin"
PASSWORD_FILE: Final = "admin.password"  # noqa: S105  # the name of a file
START: Final = "Start the broker:"
PASTE: Final = "(umask 077; cat > {file})"


class Snippet(NamedTuple):
    title: str
    text: str


def snippets(settings: "Settings", config: Path, ca: Path) -> Iterator[Snippet]:
    """Those of the interfaces that are on."""
    yield Snippet(START, f"millpond serve --config {quote(str(config))}")
    yield Snippet(
        "In another terminal, store the password in a file that only you can open (paste it, then Enter and Ctrl-D):",
        PASTE.format(file=PASSWORD_FILE),
    )
    if settings.listens("grpc"):
        yield from _of_grpc(_address(settings, "grpc"), ca)
    if settings.listens("kafka"):
        yield from _of_kafka(_address(settings, "kafka"), ca)
    if settings.listens("http"):
        yield from _of_http(_address(settings, "http"), ca)


def _of_grpc(address: str, ca: Path) -> Iterator[Snippet]:
    yield Snippet(
        "Command line:",
        f"""\
millpond context set local --address {address} --tls-ca {quote(str(ca))} \\
  --username {ADMIN} --password-file {PASSWORD_FILE}
millpond context use local
millpond produce greetings --message hello
millpond consume greetings""",
    )
    yield Snippet(
        "Python (Millpond's own client library):",
        f"""\
python3 - <<'END'
from pathlib import Path
from millpond import Consumer, Producer
broker = {{
    "address": "{address}", "tls": "{ca}",
    "username": "{ADMIN}", "password": Path("{PASSWORD_FILE}").read_text().strip(),
}}
with Producer("greetings", **broker) as producer:
    producer.send(b"hello from Python")
with Consumer("greetings", **broker) as consumer:
    print([message.value for message in consumer.poll().messages])
END""",
    )


def _of_kafka(address: str, ca: Path) -> Iterator[Snippet]:
    yield Snippet(
        "librdkafka and kcat (with librdkafka 2.6.1 or newer you can set sasl.mechanism=SCRAM-SHA-512):",
        f"""\
(umask 077; cat > librdkafka.conf) <<END
bootstrap.servers={address}
security.protocol=SASL_SSL
ssl.ca.location={ca}
sasl.mechanism=PLAIN
sasl.username={ADMIN}
sasl.password=$(cat {PASSWORD_FILE})
END
echo hello | kcat -F librdkafka.conf -P -t greetings
kcat -F librdkafka.conf -C -t greetings -e""",
    )
    yield Snippet(
        "Python (confluent-kafka):",
        f"""\
python3 - <<'END'
from confluent_kafka import Consumer, Producer
with open("{PASSWORD_FILE}") as file:
    password = file.read().strip()
broker = {{
    "bootstrap.servers": "{address}", "security.protocol": "SASL_SSL", "ssl.ca.location": "{ca}",
    "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "{ADMIN}", "sasl.password": password,
}}
producer = Producer(broker)
producer.produce("greetings", "hello from confluent-kafka")
producer.flush()
consumer = Consumer({{**broker, "group.id": "readers", "auto.offset.reset": "earliest"}})
consumer.subscribe(["greetings"])
print(consumer.poll(30).value())
consumer.close()
END""",
    )
    yield Snippet(
        "Java (kafka-console-producer.sh --producer.config java.properties …):",
        f"""\
(umask 077; cat > java.properties) <<END
bootstrap.servers={address}
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={ca}
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{ADMIN}" password="$(cat {PASSWORD_FILE})";
END""",
    )


def _of_http(address: str, ca: Path) -> Iterator[Snippet]:
    url = f"https://{address}/topics/greetings"
    yield Snippet(
        "curl:",
        f"""\
(umask 077; cat > curl.conf) <<END
cacert = "{ca}"
user = "{ADMIN}:$(cat {PASSWORD_FILE})"
END
curl -K curl.conf {url}/produce/0 -d "hello from curl"
curl -K curl.conf "{url}/fetch/0?offset=0\"""",
    )


def _address(settings: "Settings", interface: str) -> str:
    """Where clients reach the broker."""
    return settings.advertised(interface) or f"localhost:{split_address(settings.listens(interface))[1]}"
