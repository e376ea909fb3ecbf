"""Settings: from flags, environment, file and defaults, with an error that names what is wrong."""

from pathlib import Path

import pytest

from millpond import settings
from millpond.model.errors import InvalidSettings
from millpond.model.group_configs import GroupConfigBounds
from millpond.model.share_group_configs import BoundedNumber
from millpond.settings import RenamedSetting, Settings, load


def test_the_nearest_place_wins(tmp_path):
    file = tmp_path / "millpond.toml"
    file.write_text('retention = "1d"\nflush_bytes = "1MiB"\nuploads_max = 7\n')
    environment = {"MILLPOND_RETENTION": "2d", "MILLPOND_FLUSH_BYTES": "2MiB", "OTHER": "x"}
    chosen = load({"retention": "3d"}, environment, file)
    assert chosen.retention == 3 * 86_400_000
    assert chosen.flush_bytes == 2 * 2**20
    assert chosen.uploads_max == 7
    assert chosen.flush_delay == Settings().flush_delay


def test_without_anything_the_defaults_hold():
    assert load({}, {}) == Settings()


def test_the_real_environment_counts_unless_another_is_given(monkeypatch):
    monkeypatch.setenv("MILLPOND_UPLOADS_MAX", "9")
    assert load().uploads_max == 9
    assert load(environment={}).uploads_max == Settings().uploads_max


@pytest.mark.parametrize("name", settings.names())
def test_what_is_shown_can_be_given_back(name):
    shown = Settings().shown()[name]
    assert getattr(load({name: shown}, {}), name) == getattr(Settings(), name)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention", "unlimited", -1),
        ("retention", "250ms", 250),
        ("retention", "1h30m", 5_400_000),
        ("retention_bytes", "Unlimited", -1),
        ("retention_bytes", "16KiB", 16_384),
        ("max_message_bytes", "1048588", 1_048_588),
        ("auto_create_topics", "No", False),
        ("auto_create_topics", "on", True),
        ("data_dir", "somewhere/else", Path("somewhere/else")),
        ("default_partitions", "3", 3),
        ("log_format", "JSON", "json"),
    ],
)
def test_kinds_of_values(name, text, value):
    assert getattr(load({name: text}, {}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention", "soon"),
        ("retention", "10"),
        ("retention", "-1s"),
        ("retention_bytes", "many"),
        ("flush_bytes", "-5"),
        ("auto_create_topics", "maybe"),
        ("uploads_max", "0"),
        ("uploads_max", "two"),
        ("uploads_max", "1.5"),
        ("log_format", "xml"),
        ("no_such_setting", "1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, text):
    with pytest.raises(InvalidSettings) as raised:
        load({name: text}, {})
    assert raised.value.facts["name"] == name
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("content", ["retention = ", "[table]\nx = 1", 'no_such = "1"', "retention = 10"])
def test_a_wrong_file_is_refused(tmp_path, content):
    file = tmp_path / "millpond.toml"
    file.write_text(content)
    with pytest.raises(InvalidSettings):
        load({}, {}, file)


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path):
    with pytest.raises(InvalidSettings, match="No such file"):
        load({}, {}, tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings):
        load({}, {}, tmp_path / "binary")


def test_true_and_false_of_toml_are_understood(tmp_path):
    file = tmp_path / "millpond.toml"
    file.write_text("auto_create_topics = false\n")
    assert load({}, {}, file).auto_create_topics is False


def test_parts_receive_their_values():
    chosen = Settings(flush_bytes=1, uploads_max=2, garbage_grace=3, retention=4, tail_bytes_max=5)
    limits = chosen.log_limits()
    assert (limits.flush_bytes, limits.uploads_max, limits.tail_bytes_max) == (1, 2, 5)
    assert chosen.maintenance_limits().garbage_grace_ms == 3
    assert chosen.topic_defaults()["retention.ms"] == "4"


def test_the_store_lies_in_the_data_directory_unless_told_otherwise(tmp_path):
    assert Settings(data_dir=tmp_path).storage_url() == (tmp_path / "objects").as_uri()
    assert Settings(storage="memory://").storage_url() == "memory://"
    assert Settings().uses_data_dir()
    assert Settings(catalog="memory://").uses_data_dir()
    assert not Settings(catalog="memory://", storage="memory://").uses_data_dir()


def sources_of_storage(folder, **given):
    """The arguments of `load` with these assignments, such as `file={"store": "x"}`."""
    file = folder / "millpond.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in given.get("file", {}).items()))
    variables = {f"MILLPOND_{name.upper()}": value for name, value in given.get("environment", {}).items()}
    return given.get("flags", {}), variables, file


@pytest.mark.parametrize(
    ("source", "shown"), [("flags", "--set"), ("environment", "MILLPOND_STORE"), ("file", "{file}")]
)
def test_a_former_name_is_accepted_from_each_source_and_reported_once(tmp_path, source, shown):
    flags, variables, file = sources_of_storage(tmp_path, **{source: {"store": "memory://"}})
    renamed = []
    assert load(flags, variables, file, renamed.append) == Settings(storage="memory://")
    assert renamed == [RenamedSetting("store", "storage", shown.format(file=file))]
    assert load(flags, variables, file).storage == "memory://"


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"file": {"storage": "file:///f"}, "environment": {"store": "file:///e"}}, "file:///e"),
        ({"file": {"store": "file:///f"}, "environment": {"storage": "file:///e"}}, "file:///e"),
        ({"environment": {"storage": "file:///e"}, "flags": {"store": "file:///g"}}, "file:///g"),
        ({"environment": {"store": "file:///e"}, "flags": {"storage": "file:///g"}}, "file:///g"),
        ({"file": {"storage": "file:///f"}, "flags": {"store": "file:///g"}}, "file:///g"),
        ({"file": {"storage": "file:///f"}, "environment": {"store": ""}}, ""),
    ],
)
def test_precedence_is_by_source_and_not_by_name(tmp_path, given, chosen):
    assert load(*sources_of_storage(tmp_path, **given)).storage == chosen


def test_a_former_name_is_reported_for_each_source_that_has_it(tmp_path):
    both = {"store": "file:///x"}
    flags, variables, file = sources_of_storage(tmp_path, flags=both, environment=both, file=both)
    renamed = []
    load(flags, variables, file, renamed.append)
    assert [each.source for each in renamed] == [str(file), "MILLPOND_STORE", "--set"]


@pytest.mark.parametrize("source", ["flags", "environment", "file"])
def test_both_names_in_one_source_must_have_one_value(tmp_path, source):
    renamed = []
    same = sources_of_storage(tmp_path, **{source: {"storage": "file:///x", "store": "file:///x"}})
    assert load(*same, renamed.append).storage == "file:///x"
    assert len(renamed) == 1
    secret = "s3://me:se/cret@bucket/x?key=secret"
    different = sources_of_storage(tmp_path, **{source: {"storage": "file:///x", "store": secret}})
    with pytest.raises(InvalidSettings) as raised:
        load(*different)
    assert str(raised.value) == (
        "Setting store cannot be 's3://bucket/x': `storage` is set too, to another value; remove `store`."
    )


@pytest.mark.parametrize(
    ("values", "storage"),
    [
        ({"storage": "file:///x", "store": ""}, "file:///x"),
        ({"storage": "", "store": "file:///x"}, "file:///x"),
        ({"storage": "", "store": ""}, ""),
    ],
)
def test_an_empty_value_is_not_in_conflict(tmp_path, values, storage):
    """As `${MILLPOND_STORE:-}` of a compose file gives."""
    assert load(*sources_of_storage(tmp_path, environment=values)).storage == storage


def test_current_names_are_not_reported_and_a_former_one_is_no_attribute(tmp_path):
    now = {"storage": "file:///x"}
    renamed = []
    load(*sources_of_storage(tmp_path, flags=now, environment=now, file=now), renamed.append)
    assert renamed == []
    assert not hasattr(Settings, "store")
    with pytest.raises(TypeError, match="store"):
        Settings(store="file:///x")


def test_former_names_are_names_of_no_setting():
    assert not settings.RENAMED.keys() & set(settings.names())
    assert set(settings.RENAMED.values()) <= set(settings.names())


def test_every_setting_reaches_a_part_or_the_assembly():
    """A setting that nobody reads would be a lie."""
    sources = Path(settings.__file__).parent
    text = "".join(path.read_text() for path in sources.rglob("*.py"))
    for name in settings.names():
        assert f"settings.{name}" in text or f"self.{name}" in text, name


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
        ("", None),
    ],
)
def test_listens_on_this_machine(listen, expected):
    assert load({"kafka_listen": listen}, {}).address("kafka") == expected


def test_listens_beyond_it_only_when_told_and_reachable():
    with pytest.raises(InvalidSettings, match="insecure"):
        load({"kafka_listen": "broker.example:9092"}, {}).address("kafka")
    insecure = {"insecure": "true"}
    assert load({"kafka_listen": "broker.example:9092", **insecure}, {}).address("kafka") == (
        "broker.example",
        9092,
    )
    with pytest.raises(InvalidSettings, match="kafka_advertise"):
        load({"kafka_listen": "0.0.0.0:9092", **insecure}, {}).address("kafka")
    told = {"kafka_listen": "0.0.0.0:9092", "kafka_advertise": "broker.example:9092", **insecure}
    assert load(told, {}).address("kafka") == ("0.0.0.0", 9092)


@pytest.mark.parametrize("wrong", ["9092", "host:", ":9092", "host:port", "host:65536"])
def test_an_address_is_a_host_and_a_port(wrong):
    with pytest.raises(InvalidSettings, match="host:port"):
        load({"kafka_listen": wrong}, {})


def test_beyond_loopback_a_broker_needs_security_and_tls():
    beyond = {"grpc_listen": "broker.example:9999"}
    with pytest.raises(InvalidSettings, match="millpond security init"):
        load({**beyond, "tls": "on"}, {}).address("grpc")
    with pytest.raises(InvalidSettings, match="tls=proxy"):
        load({**beyond, "security": "on"}, {}).address("grpc")
    for tls in ("on", "proxy"):
        secured = load({**beyond, "security": "on", "tls": tls}, {})
        assert secured.address("grpc") == ("broker.example", 9999)


def test_client_certificates_without_tls_are_refused():
    with pytest.raises(InvalidSettings, match="tls=on"):
        load({"tls_client_auth": "required"}, {}).tls_files()


def test_the_bounds_of_group_configs_can_be_set():
    given = {"group_consumer_session_timeout": "2s", "group_consumer_session_timeout_min": "1s"}
    given |= {"group_consumer_heartbeat_interval": "100ms", "group_consumer_heartbeat_interval_min": "50ms"}
    assert load(given, {}).group_config_bounds() == GroupConfigBounds(2_000, 1_000, 60_000, 100, 50, 15_000)


def test_the_bounds_of_configs_of_share_groups_can_be_set():
    given = {"group_share_record_lock_duration": "1s", "group_share_record_lock_duration_min": "500ms"}
    given |= {"group_share_delivery_count_limit_max": "25"}
    share = load(given, {}).group_config_bounds().share
    assert share.record_lock_ms == BoundedNumber(1_000, 500, 60_000)
    assert share.delivery_count_limit == BoundedNumber(5, 2, 25)
    assert load({}, {}).group_config_bounds() == GroupConfigBounds()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"group_share_session_timeout": "2s"}, "group_share_session_timeout_min=45000"),
        ({"group_share_delivery_count_limit_max": "4"}, "group_share_delivery_count_limit_max=4"),
        (
            {"group_share_session_timeout": "4s", "group_share_session_timeout_min": "4s"},
            "less than group_share_session_timeout",
        ),
        ({"group_consumer_session_timeout": "2s"}, "group_consumer_session_timeout_min=45000ms"),
        ({"group_consumer_heartbeat_interval_max": "4s"}, "group_consumer_heartbeat_interval_max=4000ms"),
        ({"group_consumer_heartbeat_interval_min": "0ms"}, "above 0"),
        (
            {"group_consumer_session_timeout": "4s", "group_consumer_session_timeout_min": "4s"},
            "less than group_consumer_session_timeout",
        ),
    ],
)
def test_defaults_of_group_configs_lie_within_their_bounds(given, named):
    if "0ms" in given.values():
        given = given | {"group_consumer_heartbeat_interval": "0ms"}
    with pytest.raises(InvalidSettings, match=named):
        load(given, {}).group_config_bounds()
