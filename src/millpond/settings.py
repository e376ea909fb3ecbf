"""Settings: one frozen dataclass, read in one place.

Each value comes from the first of four sources that has it: a flag, `MILLPOND_<NAME>` in the environment, a
TOML file, the default. Only the assembly (`broker.py`) and the CLI use this module; parts receive plain
values.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from millpond.catalog.published_settings import PublishedSettings
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.frontends.rpc.limits import RpcLimits
from millpond.frontends.web.limits import WebLimits
from millpond.groups import GroupLimits
from millpond.log import TransactionLimits
from millpond.log.limits import LogLimits
from millpond.maintenance.service import MaintenanceLimits
from millpond.model.addresses import INTERFACES, WILDCARD_HOSTS, is_loopback, split_address
from millpond.model.errors import InvalidSettings
from millpond.model.principals import Principal
from millpond.model.urls import has_secret, redacted_url
from millpond.objects.disk_reserve import RESERVE_BYTES
from millpond.observability.logs import TEXT as TEXT_LOGS
from millpond.queues import QueueLimits
from millpond.security.addresses import AddressLimits
from millpond.security.authenticator import AuthenticationSettings
from millpond.security.oidc_settings import OPENID, OidcSettings, checked_oidc
from millpond.security.tls_files import NO_CLIENT_AUTH, TlsFiles
from millpond.service.limits import PayloadLimits, ServiceLimits
from millpond.setting_sources import RENAMED as RENAMED
from millpond.setting_sources import RenamedSetting as RenamedSetting
from millpond.setting_sources import read_file, with_current_names
from millpond.setting_types import (
    ADDRESS,
    BUFFER,
    COUNT,
    COUNT_OR_UNLIMITED,
    DURATION,
    DURATION_OR_UNLIMITED,
    FILE,
    FLAG,
    FOLDER,
    HIDDEN,
    LEASE,
    LOG_FORMAT,
    MECHANISMS,
    NODE_ID,
    PAYLOAD_AGE,
    PRINCIPALS,
    SECRET,
    SIZE,
    SIZE_OR_UNLIMITED,
    TEXT,
    TLS,
    TLS_AT_PROXY,
    TLS_CLIENT_AUTH,
    TLS_OFF,
    TLS_ON,
    SettingType,
)

ENVIRONMENT_PREFIX: Final = "MILLPOND_"
URLS: Final = ("catalog", "storage")
"""Settings that may contain a password."""


_LOG = LogLimits()
_MAINTENANCE = MaintenanceLimits()
_GROUPS = GroupLimits()
_TRANSACTIONS = TransactionLimits()
_KAFKA = KafkaLimits()
_ADDRESSES = AddressLimits()
_RPC = RpcLimits()
_WEB = WebLimits()
_PAYLOADS = PayloadLimits()
_AUTHENTICATION = AuthenticationSettings()
REQUEST_SLACK_BYTES: Final = 64 * 1024
"""What a request may need in addition to its largest message."""


def _setting(default: Any, kind: SettingType, meaning: str) -> Any:
    return field(default=default, metadata={"kind": kind, "meaning": meaning}, repr=kind is not SECRET)


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path = _setting(Path("millpond-data"), FOLDER, "Directory of the embedded catalog and store.")
    catalog: str = _setting(
        "",
        TEXT,
        "URL of the catalog: empty for SQLite in the data directory, `memory://`, or `postgresql://…`.",
    )
    storage: str = _setting(
        "",
        TEXT,
        "URL of the object store: empty for files in the data directory, or `memory://`, `file:///…`, `s3://…`.",
    )
    kafka_listen: str = _setting(
        "127.0.0.1:9092",
        ADDRESS,
        "Address on which the broker listens for Kafka clients; port 0 selects a free port, empty disables Kafka.",
    )
    kafka_advertise: str = _setting(
        "", ADDRESS, "Address that Kafka clients should connect to, if it differs from the listen address."
    )
    grpc_listen: str = _setting(
        "127.0.0.1:9999",
        ADDRESS,
        "Address on which the broker listens for gRPC clients; port 0 selects a free port, empty disables gRPC.",
    )
    grpc_advertise: str = _setting(
        "", ADDRESS, "Address that gRPC clients should connect to, if it differs from the listen address."
    )
    http_listen: str = _setting(
        "127.0.0.1:8000",
        ADDRESS,
        "Address on which the broker listens for HTTP clients; port 0 selects a free port, empty disables HTTP.",
    )
    http_advertise: str = _setting(
        "", ADDRESS, "Address that HTTP clients should connect to, if it differs from the listen address."
    )
    insecure: bool = _setting(
        False,
        FLAG,
        "Allow listening on addresses other than loopback without security and TLS. The broker warns of it in its log, "
        "its audit log and the metric `millpond_insecure`.",
    )
    tls: str = _setting(
        TLS_OFF,
        TLS,
        "Whether clients connect with TLS: on for all listeners of this broker; proxy if a proxy in front of it ends "
        "TLS, and the broker itself receives plain connections.",
    )
    tls_certificate: str = _setting(
        "",
        FILE,
        "PEM file of the certificate chain, this broker's own certificate first. A changed file is used within 10 s, "
        "or at once after SIGHUP.",
    )
    tls_key: str = _setting("", FILE, "PEM file of the certificate's private key, without a passphrase.")
    tls_client_ca: str = _setting(
        "",
        FILE,
        "PEM file of the CAs that sign client certificates and the certificates of the other brokers; empty trusts "
        "public CAs for the other brokers.",
    )
    tls_client_auth: str = _setting(
        NO_CLIENT_AUTH,
        TLS_CLIENT_AUTH,
        "Whether clients present a certificate: none, optional or required. gRPC has no optional certificates: with "
        "optional it does not ask for one.",
    )
    security: bool = _setting(False, FLAG, "Clients must authenticate, and may do only what ACLs allow them.")
    super_users: tuple[Principal, ...] = _setting(
        (), PRINCIPALS, "Principals that may do everything, separated by `;`, such as `User:admin`."
    )
    sasl_mechanisms: tuple[str, ...] = _setting(
        ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"),
        MECHANISMS,
        "SASL mechanisms that Kafka clients may use. PLAIN needs TLS, unless the broker listens on loopback.",
    )
    audit_topic: bool = _setting(
        False,
        FLAG,
        "Write the audit log to the topic `__audit`, too. Clients may read it with READ; only brokers write it.",
    )
    audit_retention: int = _setting(
        90 * 86_400_000,
        DURATION_OR_UNLIMITED,
        "Time for which the topic `__audit` keeps events; replaces the retention of the topic at the start.",
    )
    max_reauth: int = _setting(
        0,
        DURATION,
        "Time after which a Kafka client must authenticate again; 0ms asks only for it when a token expires.",
    )
    password_iterations: int = _setting(
        _AUTHENTICATION.password_iterations,
        COUNT,
        "Iterations of the hash with which new passwords are stored: 4096 to 16384.",
    )
    principal_mapping_rules: str = _setting(
        _AUTHENTICATION.principal_mapping_rules,
        TEXT,
        "How the subject of a client certificate becomes the name of a user, as Kafka's ssl.principal.mapping.rules.",
    )
    oauth_issuer: str = _setting(
        "", TEXT, "Issuer (`iss`) of the JWTs that clients may use; empty accepts none."
    )
    oauth_audience: str = _setting("", TEXT, "Audience (`aud`) that a JWT must have.")
    oauth_jwks: str = _setting(
        "", TEXT, "Keys of the issuer, as a JWK set: an https URL, or the path of a file."
    )
    oauth_subject_claim: str = _setting(
        _AUTHENTICATION.oauth_subject_claim,
        TEXT,
        "Claim of a JWT that has the name of the user; `email` counts only with `email_verified`.",
    )
    oidc_issuer: str = _setting(
        "",
        TEXT,
        "https URL of the identity provider at which browsers log in (OpenID Connect); empty for none.",
    )
    oidc_client_id: str = _setting("", TEXT, "Id of this cluster at the identity provider.")
    oidc_client_secret: str = _setting(
        "",
        SECRET,
        "Secret of this cluster at the identity provider, in the environment or the settings file.",
    )
    oidc_scopes: str = _setting(
        OPENID, TEXT, "Scopes that a login asks for; `openid email` if `oauth_subject_claim` is `email`."
    )
    oidc_redirect_url: str = _setting(
        "",
        TEXT,
        "URL of `/session/oidc/callback` as browsers reach it; empty for the one at the advertised HTTP address.",
    )
    node_id: int = _setting(0, NODE_ID, "Kafka node id of this broker; 0 selects the smallest free id.")
    log_level: str = _setting("INFO", TEXT, "Lowest level that is logged: DEBUG, INFO, WARNING or ERROR.")
    log_format: str = _setting(
        TEXT_LOGS, LOG_FORMAT, "Format of the log on stderr: text, or one JSON object per line."
    )
    auto_create_topics: bool = _setting(True, FLAG, "Create a topic when a client produces to it.")
    default_partitions: int = _setting(
        1, COUNT, "Partition count of a topic that is created by producing to it."
    )
    http_partitions: int = _setting(
        100, COUNT, "Partition count of a topic that is created over HTTP without one."
    )
    retention: int = _setting(
        7 * 86_400_000,
        DURATION_OR_UNLIMITED,
        "Time for which messages are kept; default of the topic config `retention.ms`.",
    )
    retention_bytes: int = _setting(
        -1, SIZE_OR_UNLIMITED, "Bytes kept of each partition; default of the topic config `retention.bytes`."
    )
    retention_grace: int = _setting(
        _MAINTENANCE.retention_grace_ms,
        DURATION,
        "Minimum time for which a message is kept after its append, however old its timestamp is; `retention.ms` if "
        "that is shorter.",
    )
    max_message_bytes: int = _setting(
        1_048_588, SIZE, "Maximum size of a batch; default of the topic config `max.message.bytes`."
    )
    request_bytes_max: int = _setting(
        _RPC.request_bytes_max,
        SIZE,
        "Maximum size of a gRPC or HTTP request; raised automatically if max_message_bytes needs more.",
    )
    flush_bytes: int = _setting(_LOG.flush_bytes, BUFFER, "Size at which a flush is sealed.")
    flush_delay: int = _setting(
        _LOG.flush_delay_ms,
        DURATION,
        "Time for which a flush to an object store waits for more batches. Flushes to a local store do not wait.",
    )
    uploads_max: int = _setting(
        _LOG.uploads_max, COUNT, "Maximum number of concurrent uploads to an object store."
    )
    inline_bytes_max: int = _setting(
        _LOG.inline_bytes_max,
        SIZE,
        "Maximum size of a flush that is stored inline, in the catalog, instead of in an object.",
    )
    inline_bytes_per_second: int = _setting(
        _LOG.inline_bytes_per_second, SIZE, "Maximum bytes per second stored inline."
    )
    inline_bytes_kept_max: int = _setting(
        _LOG.inline_bytes_kept_max, SIZE, "Maximum inline bytes that are not yet merged into objects."
    )
    buffer_bytes_max: int = _setting(
        _LOG.buffer_bytes_max,
        BUFFER,
        "Maximum bytes accepted and not yet durable; producers wait when it is reached.",
    )
    tail_bytes_max: int = _setting(_LOG.tail_bytes_max, SIZE, "Memory for the newest batches (tail cache).")
    cache_bytes_max: int = _setting(
        _LOG.cache_bytes_max, SIZE, "Memory for older batches that lagging readers fetch (read cache)."
    )
    group_initial_rebalance_delay: int = _setting(
        _GROUPS.initial_rebalance_delay_ms,
        DURATION,
        "Time for which a new group waits for more members before its first generation. It waits again while members "
        "keep joining, up to 30 times in total; 0ms does not wait.",
    )
    offsets_retention: int = _setting(
        _GROUPS.offsets_retention_ms,
        DURATION,
        "Time for which the committed offsets of a group without members are kept.",
    )
    transaction_timeout_max: int = _setting(
        _TRANSACTIONS.timeout_max_ms, DURATION, "Maximum transaction timeout that a producer may request."
    )
    connections_max: int = _setting(
        _KAFKA.connections_max, COUNT, "Maximum number of concurrent Kafka connections."
    )
    connections_per_address_max: int = _setting(
        _ADDRESSES.open_max, COUNT_OR_UNLIMITED, "Maximum open connections of an address; 0 is unlimited."
    )
    connections_per_address_rate: int = _setting(
        _ADDRESSES.per_second, COUNT_OR_UNLIMITED, "New connections of an address per second; 0 is unlimited."
    )
    disk_reserve: int = _setting(
        RESERVE_BYTES,
        SIZE,
        "Disk space reserved beside an SQLite catalog, so that deleting works on a full disk; at most a twentieth "
        "of the disk; 0 reserves nothing.",
    )
    garbage_grace: int = _setting(
        _MAINTENANCE.garbage_grace_ms,
        DURATION,
        "Time for which an unreferenced object is kept before it is deleted.",
    )
    compaction_every: int = _setting(
        _MAINTENANCE.compaction_every_ms,
        DURATION,
        "Interval between compaction passes; 0ms leaves compaction to `millpond pipeline compact`.",
    )
    compaction_bytes_per_second: int = _setting(
        _MAINTENANCE.compaction_bytes_per_second, BUFFER, "Maximum bytes per second that compaction reads."
    )
    compaction_keys_bytes: int = _setting(
        _MAINTENANCE.compaction_keys_bytes, SIZE, "Maximum memory for the keys of a compaction."
    )
    payload_age: int = _setting(
        _PAYLOADS.age_ms,
        PAYLOAD_AGE,
        "Age at which a payload that no message refers to is deleted; its message must be produced within half of it.",
    )
    payload_urls: bool = _setting(
        _PAYLOADS.signs_urls,
        FLAG,
        "Send clients signed URLs of the object store, if it supports them; otherwise payloads go through the broker.",
    )
    payload_broker_bytes_max: int = _setting(
        _PAYLOADS.through_broker_bytes_max, SIZE, "Maximum size of a payload that goes through the broker."
    )
    lease: int = _setting(
        6_000, LEASE, "Time after which a broker that does not renew its lease is considered dead."
    )

    def topic_defaults(self) -> dict[str, str]:
        return {
            "retention.ms": str(self.retention),
            "retention.bytes": str(self.retention_bytes),
            "max.message.bytes": str(self.max_message_bytes),
        }

    def log_limits(self) -> LogLimits:
        return LogLimits(
            flush_bytes=self.flush_bytes,
            flush_delay_ms=self.flush_delay,
            uploads_max=self.uploads_max,
            inline_bytes_max=self.inline_bytes_max,
            inline_bytes_per_second=self.inline_bytes_per_second,
            inline_bytes_kept_max=self.inline_bytes_kept_max,
            buffer_bytes_max=self.buffer_bytes_max,
            tail_bytes_max=self.tail_bytes_max,
            cache_bytes_max=self.cache_bytes_max,
        )

    def maintenance_limits(self) -> MaintenanceLimits:
        return MaintenanceLimits(
            retention_grace_ms=self.retention_grace,
            garbage_grace_ms=self.garbage_grace,
            compaction_every_ms=self.compaction_every,
            compaction_bytes_per_second=self.compaction_bytes_per_second,
            compaction_keys_bytes=self.compaction_keys_bytes,
            payload_age_ms=self.payload_age,
        )

    def published(self) -> PublishedSettings:
        return PublishedSettings(self.retention_grace, self.auto_create_topics, self.default_partitions)

    def group_limits(self) -> GroupLimits:
        return GroupLimits(
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay,
            offsets_retention_ms=self.offsets_retention,
        )

    def transaction_limits(self) -> TransactionLimits:
        return TransactionLimits(timeout_max_ms=self.transaction_timeout_max)

    def is_behind_tls_proxy(self) -> bool:
        """Whether clients use TLS although this broker receives plain connections."""
        return self.tls == TLS_AT_PROXY

    def authentication(self) -> AuthenticationSettings:
        return AuthenticationSettings(
            mechanisms=self.sasl_mechanisms,
            password_iterations=self.password_iterations,
            principal_mapping_rules=self.principal_mapping_rules,
            oauth_issuer=self.oauth_issuer,
            oauth_audience=self.oauth_audience,
            oauth_jwks=self.oauth_jwks,
            oauth_subject_claim=self.oauth_subject_claim,
        )

    def address_limits(self) -> AddressLimits:
        return AddressLimits(self.connections_per_address_max, self.connections_per_address_rate)

    def oidc(self) -> OidcSettings | None:
        """None if nothing of it is set. Raises `InvalidSettings` if it is incomplete."""
        client = (self.oidc_client_id, self.oidc_client_secret, self.oidc_scopes)
        return checked_oidc(
            OidcSettings(self.oidc_issuer, *client, self.oauth_subject_claim, self.oidc_redirect_url)
        )

    def kafka_limits(self) -> KafkaLimits:
        return KafkaLimits(connections_max=self.connections_max)

    def service_limits(self) -> ServiceLimits:
        return ServiceLimits(decompressed_bytes_max=self.log_limits().decompressed_bytes_max)

    def queue_limits(self) -> QueueLimits:
        return QueueLimits(decompressed_bytes_max=self.log_limits().decompressed_bytes_max)

    def payload_limits(self) -> PayloadLimits:
        return PayloadLimits(
            age_ms=self.payload_age,
            signs_urls=self.payload_urls,
            through_broker_bytes_max=self.payload_broker_bytes_max,
            held_bytes_max=max(_PAYLOADS.held_bytes_max, self.payload_broker_bytes_max),
        )

    def rpc_limits(self) -> RpcLimits:
        return RpcLimits(request_bytes_max=self._request_bytes_max())

    def web_limits(self) -> WebLimits:
        return WebLimits(request_bytes_max=self._request_bytes_max())

    def _request_bytes_max(self) -> int:
        return max(self.request_bytes_max, self.max_message_bytes + REQUEST_SLACK_BYTES)

    def address(self, interface: str) -> tuple[str, int] | None:
        """The address that `kafka`, `grpc` or `http` listens on; None if it is off. An address beyond this
        machine needs security and TLS, or the setting `insecure`."""
        name, listen = f"{interface}_listen", self.listens(interface)
        if not listen:
            return None
        host, port = split_address(listen)
        if not is_loopback(host) and not self.insecure:
            self._check_secured(name, listen)
        if host in WILDCARD_HOSTS and not self.advertised(interface) and interface == "kafka":
            reason = (
                "clients cannot connect to it; say with kafka_advertise=host:port where they find this broker"
            )
            raise InvalidSettings(name=name, value=listen, reason=reason)
        return host, port

    def _check_secured(self, name: str, listen: str) -> None:
        if not self.security:
            reason = (
                "other machines could reach it and clients do not authenticate; run `millpond security init` to set up "
                "users and TLS, or allow it without them with `millpond serve --insecure` (the setting insecure=true)"
            )
            raise InvalidSettings(name=name, value=listen, reason=reason)
        if self.tls == TLS_OFF:
            reason = (
                "passwords would cross the network unencrypted; set tls=on, or tls=proxy behind a proxy, or allow it "
                "with `millpond serve --insecure` (the setting insecure=true)"
            )
            raise InvalidSettings(name=name, value=listen, reason=reason)

    def insecure_listeners(self) -> list[str]:
        """The addresses that only the setting `insecure` allows."""
        listens = [self.listens(interface) for interface in INTERFACES]
        beyond = [each for each in listens if each and not is_loopback(split_address(each)[0])]
        return beyond if not self.security or self.tls == TLS_OFF else []

    def check_audit_topic(self) -> None:
        """Raises `InvalidSettings` if the topic cannot be protected."""
        if self.audit_topic and not self.security:
            reason = "without security=on every client could write to it, and events would have no names"
            raise InvalidSettings(name="audit_topic", value="true", reason=reason)

    def listens(self, interface: str) -> str:
        return {"kafka": self.kafka_listen, "grpc": self.grpc_listen, "http": self.http_listen}[interface]

    def advertised(self, interface: str) -> str:
        """The address that clients of an interface receive; empty if it is the one listened on."""
        addresses = {"kafka": self.kafka_advertise, "grpc": self.grpc_advertise, "http": self.http_advertise}
        return addresses[interface]

    def tls_files(self) -> TlsFiles | None:
        """The files of TLS; None unless the broker itself ends TLS."""
        if self.tls != TLS_ON:
            if self.tls_client_auth != NO_CLIENT_AUTH:
                reason = "client certificates need tls=on"
                raise InvalidSettings(name="tls_client_auth", value=self.tls_client_auth, reason=reason)
            return None
        for name in ("tls_certificate", "tls_key"):
            if not getattr(self, name):
                raise InvalidSettings(name=name, value="", reason="tls=on needs a file in PEM format")
        if self.tls_client_auth != NO_CLIENT_AUTH and not self.tls_client_ca:
            reason = "client certificates need tls_client_ca, the file of their CA"
            raise InvalidSettings(name="tls_client_auth", value=self.tls_client_auth, reason=reason)
        client_ca = Path(self.tls_client_ca) if self.tls_client_ca else None
        return TlsFiles(Path(self.tls_certificate), Path(self.tls_key), client_ca, self.tls_client_auth)

    def http_scheme(self) -> str:
        """The scheme of the URLs by which clients reach the HTTP interface."""
        return "http" if self.tls == TLS_OFF else "https"

    def storage_url(self) -> str:
        return self.storage or (self.data_dir.absolute() / "objects").as_uri()

    def uses_data_dir(self) -> bool:
        return not self.catalog or not self.storage

    def shown(self) -> dict[str, str]:
        """Every setting as text that `load` accepts."""
        return {name: kind_of(name).show(getattr(self, name)) for name in names()}


def names() -> list[str]:
    return [each.name for each in dataclasses.fields(Settings)]


def kind_of(name: str) -> SettingType:
    kind: SettingType = Settings.__dataclass_fields__[name].metadata["kind"]
    return kind


def meaning_of(name: str) -> str:
    meaning: str = Settings.__dataclass_fields__[name].metadata["meaning"]
    return meaning


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def load(
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    on_renamed: Callable[[RenamedSetting], None] = lambda _: None,
) -> Settings:
    """Load settings from flags, environment and file. Raises `InvalidSettings` that names the wrong one.

    Former names are replaced within each source before the sources are merged, so that precedence depends on the
    source and not on the name. `on_renamed` receives each use of a former name."""
    sources: tuple[tuple[Mapping[str, str], Callable[[str], str]], ...] = (
        (read_file(file), lambda _: str(file)),
        (_from_environment(os.environ if environment is None else environment), variable_of),
        (flags or {}, lambda _: "--set"),
    )
    given: dict[str, str] = {}
    for values, source_of in sources:
        given |= with_current_names(values)
        for old in filter(values.__contains__, RENAMED):
            on_renamed(RenamedSetting(old, RENAMED[old], source_of(old)))
    _check_flags(flags or {})
    return Settings(**{name: _parse(name, text) for name, text in given.items()})


def _check_flags(flags: Mapping[str, str]) -> None:
    for name, text in flags.items():
        current = RENAMED.get(name, name)
        is_secret = current in Settings.__dataclass_fields__ and kind_of(current) is SECRET
        if (is_secret and text) or (current in URLS and has_secret(text)):
            reason = (
                "other users of the machine can see the secret in an option; set "
                f"{variable_of(current)}, or use the settings file"
            )
            raise InvalidSettings(name=name, value=HIDDEN if is_secret else redacted_url(text), reason=reason)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {variable_of(name): name for name in (*names(), *RENAMED)}
    return {known[key]: value for key, value in environment.items() if key in known}


def _parse(name: str, text: str) -> Any:
    if name not in names():
        meant = get_close_matches(name, names(), n=1)
        advice = f"; did you mean {meant[0]}?" if meant else ""
        raise InvalidSettings(name=name, value=text, reason=f"there is no such setting{advice}")
    try:
        return kind_of(name).parse(text)
    except ValueError as error:
        raise InvalidSettings(name=name, value=text, reason=str(error)) from error
