"""Every setting: its name, default, type and meaning. `settings.py` says what the parts of a broker get from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.frontends.rpc.limits import RpcLimits
from millpond.groups import GroupLimits
from millpond.log import TransactionLimits
from millpond.log.limits import LogLimits
from millpond.maintenance.service import MaintenanceLimits
from millpond.model.broker_configs import CONNECTIONS_DEFAULT
from millpond.model.group_configs import GroupConfigBounds, MigrationPolicy
from millpond.model.principals import Principal
from millpond.objects.disk_reserve import RESERVE_BYTES
from millpond.observability.logs import TEXT as TEXT_LOGS
from millpond.security.addresses import AddressLimits
from millpond.security.authenticator import AuthenticationSettings
from millpond.security.oidc_settings import OPENID
from millpond.security.tls_files import NO_CLIENT_AUTH
from millpond.service.limits import PayloadLimits
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
    LEASE,
    LOG_FORMAT,
    MECHANISMS,
    MIGRATION_POLICY,
    NODE_ID,
    PAYLOAD_AGE,
    PRINCIPALS,
    SECRET,
    SIZE,
    SIZE_OR_UNLIMITED,
    TEXT,
    TLS,
    TLS_CLIENT_AUTH,
    TLS_OFF,
    SettingType,
)

_LOG = LogLimits()
_MAINTENANCE = MaintenanceLimits()
_GROUPS = GroupLimits()
_GROUP_CONFIGS = GroupConfigBounds()
_SHARE = _GROUP_CONFIGS.share
_TRANSACTIONS = TransactionLimits()
_ADDRESSES = AddressLimits()
_RPC = RpcLimits()
_PAYLOADS = PayloadLimits()
_AUTHENTICATION = AuthenticationSettings()


def _setting(default: Any, kind: SettingType, meaning: str) -> Any:
    return field(default=default, metadata={"kind": kind, "meaning": meaning}, repr=kind is not SECRET)


@dataclass(frozen=True, slots=True)
class SettingFields:
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
    group_consumer_session_timeout: int = _setting(
        _GROUP_CONFIGS.session_timeout_ms,
        DURATION,
        "Time after which a member of the consumer protocol that sends no heartbeat is removed; default of the group "
        "config `consumer.session.timeout.ms`.",
    )
    group_consumer_session_timeout_min: int = _setting(
        _GROUP_CONFIGS.session_timeout_min_ms, DURATION, "Minimum of that group config."
    )
    group_consumer_session_timeout_max: int = _setting(
        _GROUP_CONFIGS.session_timeout_max_ms, DURATION, "Maximum of that group config."
    )
    group_consumer_heartbeat_interval: int = _setting(
        _GROUP_CONFIGS.heartbeat_interval_ms,
        DURATION,
        "Interval at which members of the consumer protocol send heartbeats; default of the group config "
        "`consumer.heartbeat.interval.ms`.",
    )
    group_consumer_heartbeat_interval_min: int = _setting(
        _GROUP_CONFIGS.heartbeat_interval_min_ms, DURATION, "Minimum of that group config."
    )
    group_consumer_heartbeat_interval_max: int = _setting(
        _GROUP_CONFIGS.heartbeat_interval_max_ms, DURATION, "Maximum of that group config."
    )
    group_share_session_timeout: int = _setting(
        _SHARE.session_timeout_ms.value,
        DURATION,
        "Time after which a member of a share group that sends no heartbeat is removed; default "
        "of the group config `share.session.timeout.ms`.",
    )
    group_share_session_timeout_min: int = _setting(
        _SHARE.session_timeout_ms.low, DURATION, "Minimum of that group config."
    )
    group_share_session_timeout_max: int = _setting(
        _SHARE.session_timeout_ms.high, DURATION, "Maximum of that group config."
    )
    group_share_heartbeat_interval: int = _setting(
        _SHARE.heartbeat_interval_ms.value,
        DURATION,
        "Interval at which members of a share group send heartbeats; default "
        "of the group config `share.heartbeat.interval.ms`.",
    )
    group_share_heartbeat_interval_min: int = _setting(
        _SHARE.heartbeat_interval_ms.low, DURATION, "Minimum of that group config."
    )
    group_share_heartbeat_interval_max: int = _setting(
        _SHARE.heartbeat_interval_ms.high, DURATION, "Maximum of that group config."
    )
    group_share_record_lock_duration: int = _setting(
        _SHARE.record_lock_ms.value,
        DURATION,
        "Time that a member of a share group has to acknowledge a message; default "
        "of the group config `share.record.lock.duration.ms`.",
    )
    group_share_record_lock_duration_min: int = _setting(
        _SHARE.record_lock_ms.low, DURATION, "Minimum of that group config."
    )
    group_share_record_lock_duration_max: int = _setting(
        _SHARE.record_lock_ms.high, DURATION, "Maximum of that group config."
    )
    group_share_delivery_count_limit: int = _setting(
        _SHARE.delivery_count_limit.value,
        COUNT,
        "Maximum number of deliveries of a message to a share group; default "
        "of the group config `share.delivery.count.limit`.",
    )
    group_share_delivery_count_limit_min: int = _setting(
        _SHARE.delivery_count_limit.low, COUNT, "Minimum of that group config."
    )
    group_share_delivery_count_limit_max: int = _setting(
        _SHARE.delivery_count_limit.high, COUNT, "Maximum of that group config."
    )
    group_share_partition_max_record_locks: int = _setting(
        _SHARE.partition_locks_max.value,
        COUNT,
        "Maximum number of messages of a partition that a share group processes at a time; default "
        "of the group config `share.partition.max.record.locks`.",
    )
    group_share_partition_max_record_locks_min: int = _setting(
        _SHARE.partition_locks_max.low, COUNT, "Minimum of that group config."
    )
    group_share_partition_max_record_locks_max: int = _setting(
        _SHARE.partition_locks_max.high, COUNT, "Maximum of that group config."
    )
    group_consumer_migration_policy: MigrationPolicy = _setting(
        _GROUPS.consumer_migration_policy,
        MIGRATION_POLICY,
        "Which protocol a group with members may change to when clients of the other protocol join or are left: "
        "`upgrade` to the consumer protocol, `downgrade` to the classic protocol, both, or neither.",
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
        CONNECTIONS_DEFAULT, COUNT, "Maximum number of concurrent Kafka connections."
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
