"""The configs of groups and brokers, for all interfaces. The rights of a client have been checked before.

A group need not exist, and a broker need not run, to have configs. A change is in effect on this broker when its call
returns, and on the others about a second later at the latest.
"""

from collections.abc import Mapping

from millpond.catalog import groups
from millpond.log import Log
from millpond.model import broker_configs
from millpond.model.config_changes import ConfigPlan, CurrentConfigs
from millpond.model.configs import ConfigDefinition
from millpond.model.dynamic_configs import BROKER, EVERY_BROKER, GROUP, ConfigResource
from millpond.model.errors import InvalidConfig, InvalidRequest
from millpond.model.group_configs import KAFKAS_DEFAULTS
from millpond.model.group_ids import check_group_id
from millpond.model.share_group_configs import KEY_ORDER
from millpond.model.topics import ConfigOrigin, ConfigValue
from millpond.security import Access
from millpond.security.audit import AuditLog
from millpond.service.audited_topic_changes import NotedPlan
from millpond.topology import BrokerConfigs, DynamicConfigView, TopologyView


class ConfigAdministration:
    def __init__(
        self,
        log: Log,
        view: DynamicConfigView,
        broker: BrokerConfigs,
        topology: TopologyView,
        audit: AuditLog,
    ) -> None:
        self.broker = broker
        """The configs of the broker that was called."""
        self._log = log
        self._view = view
        self._topology = topology
        self._audit = audit

    # -- groups -------------------------------------------------------------------------------------------------

    @property
    def group_definitions(self) -> Mapping[str, ConfigDefinition]:
        """The defaults are those of this broker."""
        return self._view.groups.definitions

    def group_overrides(self, group_id: str) -> Mapping[str, str]:
        """The configs that were set for a group."""
        return self._view.current.of(group_resource(group_id))

    def groups_with_configs(self) -> list[str]:
        return self._view.current.names(GROUP)

    def describe_group(self, group_id: str) -> dict[str, ConfigValue]:
        """Every config of a group with its value and the source of that value."""
        overrides = self.group_overrides(group_id)
        return {
            name: _group_value(name, definition.default, overrides)
            for name, definition in self.group_definitions.items()
        }

    async def alter_group(
        self, access: Access, group_id: str, plan: ConfigPlan, *, validate_only: bool = False
    ) -> None:
        resource = group_resource(group_id)
        if await self._has_share_members(group_id):
            plan = _without_key_order(plan)
        await self._alter(access, resource, plan, validate_only=validate_only)

    async def _has_share_members(self, group_id: str) -> bool:
        """As stored: the group may have another coordinator."""
        found = await self._log.read(lambda tx: groups.find(tx, group_id))
        return found is not None and found.type == groups.SHARE and found.state != "Empty"

    # -- brokers ------------------------------------------------------------------------------------------------

    async def alter_broker(
        self, access: Access, name: str, plan: ConfigPlan, *, validate_only: bool = False
    ) -> None:
        """`name` is a node id, or empty for every broker."""
        resource = ConfigResource(BROKER, name)
        if name != EVERY_BROKER and not self._view.current.of(resource):
            self._check_runs(name)
        await self._alter(access, resource, plan, validate_only=validate_only)

    def _check_runs(self, name: str) -> None:
        if name not in {str(each.node_id) for each in self._topology.current.members.values()}:
            reason = f"no broker with node id {name!r} is running, and none has configs of its own"
            raise InvalidRequest(reason=reason)

    # -- both ---------------------------------------------------------------------------------------------------

    async def _alter(
        self, access: Access, resource: ConfigResource, plan: ConfigPlan, *, validate_only: bool
    ) -> None:
        noted = NotedPlan(plan)
        if validate_only:
            self._altered(resource, self._view.current.of(resource), noted)
            return
        await self._log.alter_dynamic_configs(
            resource, lambda overrides: self._altered(resource, overrides, noted)
        )
        if noted.names():
            named = f"{resource.kind} {resource.name!r}" if resource.name else f"every {resource.kind}"
            self._audit.changed(access.principal, access.host, "configs changed", f"{named}: {noted.names()}")

    def _altered(
        self, resource: ConfigResource, overrides: Mapping[str, str], plan: ConfigPlan
    ) -> dict[str, str]:
        """The configs of a resource after an alteration. Raises if it is not possible. Also runs on the writer thread,
        so it uses nothing that changes."""
        if resource.kind == GROUP:
            return self._view.groups.altered(overrides, plan)
        return broker_configs.altered(overrides, plan, self.broker.settings)


def _without_key_order(plan: ConfigPlan) -> ConfigPlan:
    """The plan, which must not alter the key order: the order of messages in flight cannot change."""

    def checked(current: CurrentConfigs) -> Mapping[str, str | None]:
        changes = plan(current)
        default = current.definitions[KEY_ORDER].default
        if KEY_ORDER in changes and (changes[KEY_ORDER] or default) != current.value(KEY_ORDER):
            raise InvalidConfig(key=KEY_ORDER, value=changes[KEY_ORDER], reason="its group has members")
        return changes

    return checked


def group_resource(group_id: str) -> ConfigResource:
    check_group_id(group_id)
    return ConfigResource(GROUP, group_id)


def _group_value(name: str, default: str, overrides: Mapping[str, str]) -> ConfigValue:
    if name in overrides:
        return ConfigValue(overrides[name], ConfigOrigin.GROUP)
    origin = ConfigOrigin.DEFAULT if default == KAFKAS_DEFAULTS[name] else ConfigOrigin.BROKER
    return ConfigValue(default, origin)
