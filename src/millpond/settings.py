"""Settings: one frozen dataclass, read in one place.

Each value comes from the first of four sources that has it: a flag, `MILLPOND_<NAME>` in the environment, a
TOML file, the default. Only the assembly (`broker.py`) and the CLI use this module; parts receive plain
values.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from millpond.model import broker_configs
from millpond.model.addresses import INTERFACES, WILDCARD_HOSTS, is_loopback, split_address
from millpond.model.errors import InvalidSettings
from millpond.model.group_configs import GroupConfigBounds
from millpond.model.share_group_configs import BoundedNumber, ShareGroupConfigBounds
from millpond.model.urls import has_secret, redacted_url
from millpond.queues import QueueLimits
from millpond.security.addresses import AddressLimits
from millpond.security.authenticator import AuthenticationSettings
from millpond.security.oidc_settings import OidcSettings, checked_oidc
from millpond.security.tls_files import NO_CLIENT_AUTH, TlsFiles
from millpond.service.limits import PayloadLimits, ServiceLimits
from millpond.setting_fields import SettingFields
from millpond.setting_sources import RENAMED as RENAMED
from millpond.setting_sources import RenamedSetting as RenamedSetting
from millpond.setting_sources import read_file, with_current_names
from millpond.setting_types import (
    HIDDEN,
    SECRET,
    TLS_AT_PROXY,
    TLS_OFF,
    TLS_ON,
    SettingType,
)

ENVIRONMENT_PREFIX: Final = "MILLPOND_"
URLS: Final = ("catalog", "storage")
"""Settings that may contain a password."""


_PAYLOADS = PayloadLimits()
REQUEST_SLACK_BYTES: Final = 64 * 1024
"""What a request may need in addition to its largest message."""


@dataclass(frozen=True, slots=True)
class Settings(SettingFields):
    """The settings of a broker, and what its parts get from them."""

    def topic_defaults(self) -> dict[str, str]:
        return {
            "retention.ms": str(self.retention),
            "retention.bytes": str(self.retention_bytes),
            "max.message.bytes": str(self.max_message_bytes),
        }

    def broker_configs(self) -> dict[str, str]:
        """The settings that dynamic configs of brokers override, under Kafka's names."""
        return {
            broker_configs.AUTO_CREATE: str(self.auto_create_topics).lower(),
            broker_configs.DEFAULT_PARTITIONS: str(self.default_partitions),
            broker_configs.CONNECTIONS_MAX: str(self.connections_max),
            **{broker_configs.OF_TOPIC_CONFIGS[name]: value for name, value in self.topic_defaults().items()},
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
            consumer_migration_policy=self.group_consumer_migration_policy,
        )

    def group_config_bounds(self) -> GroupConfigBounds:
        """Raises `InvalidSettings` if a default is outside of its bounds."""
        bounds = GroupConfigBounds(
            self.group_consumer_session_timeout,
            self.group_consumer_session_timeout_min,
            self.group_consumer_session_timeout_max,
            self.group_consumer_heartbeat_interval,
            self.group_consumer_heartbeat_interval_min,
            self.group_consumer_heartbeat_interval_max,
            self._share_group_config_bounds(),
        )
        for name in ("group_consumer_session_timeout", "group_consumer_heartbeat_interval"):
            value, low, high = (getattr(self, name + end) for end in ("", "_min", "_max"))
            if not 0 < low <= value <= high:
                reason = f"it must lie between {name}_min={low}ms, which is above 0, and {name}_max={high}ms"
                raise InvalidSettings(name=name, value=f"{value}ms", reason=reason)
        if bounds.heartbeat_interval_ms >= bounds.session_timeout_ms:
            name, value = "group_consumer_heartbeat_interval", f"{bounds.heartbeat_interval_ms}ms"
            reason = "it must be less than group_consumer_session_timeout"
            raise InvalidSettings(name=name, value=value, reason=reason)
        return bounds

    def _share_group_config_bounds(self) -> ShareGroupConfigBounds:
        numbers = {
            "group_share_session_timeout": BoundedNumber(
                self.group_share_session_timeout,
                self.group_share_session_timeout_min,
                self.group_share_session_timeout_max,
            ),
            "group_share_heartbeat_interval": BoundedNumber(
                self.group_share_heartbeat_interval,
                self.group_share_heartbeat_interval_min,
                self.group_share_heartbeat_interval_max,
            ),
            "group_share_record_lock_duration": BoundedNumber(
                self.group_share_record_lock_duration,
                self.group_share_record_lock_duration_min,
                self.group_share_record_lock_duration_max,
            ),
            "group_share_delivery_count_limit": BoundedNumber(
                self.group_share_delivery_count_limit,
                self.group_share_delivery_count_limit_min,
                self.group_share_delivery_count_limit_max,
            ),
            "group_share_partition_max_record_locks": BoundedNumber(
                self.group_share_partition_max_record_locks,
                self.group_share_partition_max_record_locks_min,
                self.group_share_partition_max_record_locks_max,
            ),
        }
        for name, number in numbers.items():
            if not 0 < number.low <= number.value <= number.high:
                reason = f"it must lie between {name}_min={number.low}, which is above 0, and {name}_max={number.high}"
                raise InvalidSettings(name=name, value=str(number.value), reason=reason)
        bounds = ShareGroupConfigBounds(*numbers.values())
        if bounds.heartbeat_interval_ms.value >= bounds.session_timeout_ms.value:
            name, value = "group_share_heartbeat_interval", f"{bounds.heartbeat_interval_ms.value}ms"
            reason = "it must be less than group_share_session_timeout"
            raise InvalidSettings(name=name, value=value, reason=reason)
        return bounds

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
        return KafkaLimits()

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
