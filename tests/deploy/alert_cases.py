"""For each alert the series that provoke it, as promtool writes them: `start+step x times`, one value a minute."""

from typing import NamedTuple


class Case(NamedTuple):
    series: dict[str, str]
    minutes: int = 30


BROKER = 'job="millpond",instance="b1"'


def slow(metric: str, bound: str) -> dict[str, str]:
    """A histogram of which every observation is above the bound."""
    return {
        f'{metric}_bucket{{{BROKER},le="{bound}"}}': "0x60",
        f'{metric}_bucket{{{BROKER},le="30.0"}}': "0+60x60",
        f'{metric}_bucket{{{BROKER},le="+Inf"}}': "0+60x60",
    }


CASES = {
    "MillpondBrokerDown": Case({f"up{{{BROKER}}}": "1x5 0x60"}),
    "MillpondBrokerMissing": Case({f"millpond_cluster_brokers{{{BROKER}}}": "3x10 2x60"}),
    "MillpondDiskFull": Case({f"millpond_disk_full{{{BROKER}}}": "0x10 1x60"}),
    "MillpondAppendsFail": Case({f"millpond_log_refusals_total{{{BROKER}}}": "0+6x60"}),
    "MillpondPartitionHalted": Case({f"millpond_log_halted_total{{{BROKER}}}": "0x10 1x60"}),
    "MillpondStoreFails": Case(
        {f'millpond_store_errors_total{{{BROKER},operation="put",kind="x"}}': "0+60x60"}
    ),
    "MillpondSlowFlushes": Case(slow("millpond_log_flush_seconds", "1.0")),
    "MillpondBusyEventLoop": Case(slow("millpond_event_loop_lag_seconds", "0.2")),
    "MillpondGroupFallsBehind": Case(
        {f'millpond_group_lag{{{BROKER},group="g",topic="t"}}': "1000+1000x60"}, minutes=40
    ),
    "MillpondSubscriptionFallsBehind": Case(
        {f'millpond_subscription_lag{{{BROKER},subscription="s",topic="t"}}': "1000+1000x60"}, minutes=40
    ),
    "MillpondDeadLetters": Case({f'millpond_queue_settled_total{{{BROKER},how="dead"}}': "0+1x60"}),
    "MillpondMaintenanceFails": Case(
        {f'millpond_maintenance_failures_total{{{BROKER},duty="merging"}}': "0+1x60"}
    ),
    "MillpondCertificateExpires": Case(
        {f'millpond_certificate_expiry_seconds{{{BROKER},path="c"}}': "86400x60"}
    ),
    "MillpondWrongPasswords": Case(
        {f'millpond_authentication_failures_total{{{BROKER},interface="kafka"}}': "0+120x60"}
    ),
    "MillpondAuditEventsMissing": Case({f"millpond_audit_dropped_total{{{BROKER}}}": "0x10 5x60"}),
    "MillpondConnectionsRefused": Case({f"millpond_connections_refused_total{{{BROKER}}}": "0+6x60"}),
    "MillpondFileDescriptors": Case(
        {f"process_open_fds{{{BROKER}}}": "900x60", f"process_max_fds{{{BROKER}}}": "1024x60"}
    ),
    "MillpondInsecure": Case({f"millpond_insecure{{{BROKER}}}": "1x120"}, minutes=90),
}
HEALTHY = {
    f"up{{{BROKER}}}": "1x120",
    f"millpond_cluster_brokers{{{BROKER}}}": "3x120",
    f"millpond_disk_full{{{BROKER}}}": "0x120",
    f"millpond_log_refusals_total{{{BROKER}}}": "7x120",
    f"millpond_log_halted_total{{{BROKER}}}": "1x120",
    f'millpond_store_errors_total{{{BROKER},operation="put",kind="x"}}': "0+1x120",
    f'millpond_log_flush_seconds_bucket{{{BROKER},le="1.0"}}': "0+60x120",
    f'millpond_log_flush_seconds_bucket{{{BROKER},le="+Inf"}}': "0+60x120",
    f'millpond_event_loop_lag_seconds_bucket{{{BROKER},le="0.2"}}': "0+60x120",
    f'millpond_event_loop_lag_seconds_bucket{{{BROKER},le="+Inf"}}': "0+60x120",
    f'millpond_group_lag{{{BROKER},group="g",topic="t"}}': "50000x120",
    f'millpond_group_lag{{{BROKER},group="small",topic="t"}}': "0+8x120",
    f'millpond_subscription_lag{{{BROKER},subscription="s",topic="t"}}': "90000-500x120",
    f'millpond_queue_settled_total{{{BROKER},how="dead"}}': "4x120",
    f'millpond_queue_settled_total{{{BROKER},how="acked"}}': "0+600x120",
    f'millpond_maintenance_failures_total{{{BROKER},duty="merging"}}': "2x120",
    f'millpond_certificate_expiry_seconds{{{BROKER},path="c"}}': "8640000-60x120",
    f'millpond_authentication_failures_total{{{BROKER},interface="kafka"}}': "0+6x120",
    f"millpond_audit_dropped_total{{{BROKER}}}": "3x120",
    f"millpond_connections_refused_total{{{BROKER}}}": "9x120",
    f"process_open_fds{{{BROKER}}}": "200x120",
    f"process_max_fds{{{BROKER}}}": "1024x120",
    f"millpond_insecure{{{BROKER}}}": "0x120",
}
"""A broker in order: counters that stand still, lag that is large or grows from little, and shrinks."""
