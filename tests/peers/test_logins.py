"""Clients in other languages that log in over TLS: by each mechanism and by certificate; with the right, the wrong and
an expired proof. Each program tries all logins in one run."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.peers.logins import PROOFS, Secured, secured, served
from tests.peers.support import available, said, shows

from peers import kafka, programs

JAVA, FRANZ_GO, KAFKAJS, KCAT = "Kafka's Java client", "franz-go", "kafkajs", "kcat"
REAUTHENTICATE_AFTER = "3s"
FIRST_WITH_SCRAM = (2, 6, 1)
"""Of librdkafka."""
Seen = Callable[[], dict[str, Any]]

every_proof = pytest.mark.parametrize("proof", PROOFS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture(scope="module", params=kafka.VERSIONS)
def version(request) -> str:
    available(lambda: kafka.jars(request.param))
    return request.param


@pytest.fixture(scope="module")
def of_java(broker, version) -> Seen:
    program = available(lambda: programs.java_login(version))
    return functools.cache(lambda: program.ask("use", broker.address, broker.file(token_urls=True)))


@pytest.fixture(scope="module")
def of_franz_go(broker) -> Seen:
    program = available(programs.franz_go)
    return functools.cache(lambda: program.ask("login", broker.address, "franz-go", broker.file()))


@pytest.fixture(scope="module")
def of_kafkajs(broker) -> Seen:
    program = available(programs.kafkajs)
    return functools.cache(lambda: program.ask("login", broker.address, "kafkajs", broker.file()))


def check_served(seen: dict[str, Any], proof: str) -> None:
    assert served(seen[proof]), seen[proof]


def check_refused(seen: dict[str, Any], proof: str) -> None:
    """Every wrong and every expired proof of this kind."""
    tried = {name: each for name, each in seen.items() if name.startswith(f"{proof} ")}
    assert f"{proof} wrong" in tried
    assert [name for name, each in tried.items() if each["sent"] == "yes"] == []


def check_tls(seen: dict[str, Any]) -> None:
    for name in ("TLS without a login", "TLS with another CA"):
        assert seen[name]["sent"] != "yes", name
    assert (
        "certificate" in seen["TLS with another CA"]["sent"] or "SSL" in seen["TLS with another CA"]["sent"]
    )


LOGS_IN = "logs in over TLS: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, certificate"
IS_REFUSED = "is refused with a wrong password, a wrong or expired token or certificate"
CHECKS_TLS = "refuses a broker whose CA it does not trust; is refused without a login"


@every_proof
@shows(JAVA, LOGS_IN)
def test_java_is_served(of_java, version, proof):
    check_served(of_java(), proof)


@every_proof
@shows(JAVA, IS_REFUSED)
def test_java_is_refused(of_java, version, proof):
    check_refused(of_java(), proof)


@shows(JAVA, CHECKS_TLS)
def test_java_with_tls_only(of_java, version):
    check_tls(of_java())


@shows(JAVA, "authenticates again on its connections when the broker asks for it")
def test_java_authenticates_again(version, tmp_path):
    """With each mechanism: the broker ends the sessions of clients that do not."""
    program = available(lambda: programs.java_login(version))
    mechanisms = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
    with secured(tmp_path, max_reauth=REAUTHENTICATE_AFTER) as broker:
        seen = program.ask("again", broker.address, broker.file(names=mechanisms, token_urls=True))
    assert seen == {each: {"sent": "yes", "again": True, "failed": 0.0} for each in mechanisms}


@every_proof
@shows(FRANZ_GO, LOGS_IN)
def test_franz_go_is_served(of_franz_go, proof):
    check_served(of_franz_go(), proof)


@every_proof
@shows(FRANZ_GO, IS_REFUSED)
def test_franz_go_is_refused(of_franz_go, proof):
    check_refused(of_franz_go(), proof)


@shows(FRANZ_GO, CHECKS_TLS)
def test_franz_go_with_tls_only(of_franz_go):
    check_tls(of_franz_go())


@every_proof
@shows(KAFKAJS, LOGS_IN)
def test_kafkajs_is_served(of_kafkajs, proof):
    check_served(of_kafkajs(), proof)


@every_proof
@shows(KAFKAJS, IS_REFUSED)
def test_kafkajs_is_refused(of_kafkajs, proof):
    check_refused(of_kafkajs(), proof)


@shows(KAFKAJS, CHECKS_TLS)
def test_kafkajs_with_tls_only(of_kafkajs):
    check_tls(of_kafkajs())


def kcat_lists(broker: Secured, login: str) -> Any:
    """`kcat -L` of the topic `orders`."""
    given = broker.logins[login]
    options = {
        "ssl.ca.location": given["ca"],
        "security.protocol": "SASL_SSL" if "mechanism" in given else "SSL",
    }
    if "mechanism" in given:
        options |= {
            "sasl.mechanism": given["mechanism"],
            "sasl.username": given["user"],
            "sasl.password": given["password"],
        }
    if "certificate" in given:
        options |= {"ssl.certificate.location": given["certificate"], "ssl.key.location": given["key"]}
    settings = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    return available(programs.kcat).run("-b", broker.address, *settings, "-L", "-t", "orders", "-m", "10")


@pytest.mark.parametrize("proof", ["PLAIN", "mTLS"])
@shows(KCAT, "logs in over TLS: PLAIN, certificate")
def test_kcat_is_served(broker, proof):
    assert 'topic "orders" with 1 partitions' in said(kcat_lists(broker, proof))


@pytest.mark.parametrize("login", ["PLAIN wrong", "mTLS wrong", "mTLS expired", "TLS without a login"])
@shows(KCAT, "is refused with a wrong password or certificate")
def test_kcat_is_refused(broker, login):
    assert kcat_lists(broker, login).returncode != 0


@pytest.mark.parametrize("proof", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@shows(KCAT, "logs in over TLS: SCRAM")
def test_kcat_with_scram(broker, proof):
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said(available(programs.kcat).run("-V")))
    if tuple(map(int, version.groups())) < FIRST_WITH_SCRAM:
        pytest.skip("librdkafka before 2.6.1 repeats part of the nonce, which is refused as Kafka 4 does")
    assert 'topic "orders" with 1 partitions' in said(kcat_lists(broker, proof))
