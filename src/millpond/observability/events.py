"""What the log says, for operators: the cause and the remedy of every event of level WARNING and above, and all fields.

`docs/reference/logs.md` is generated from these tables and from the calls in the source. `tests/tidy` fails if a call
has no entry here, or an entry no call. Links are relative to that page. Nothing reads these tables when a broker runs.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Explanation(NamedTuple):
    cause: str
    remedy: str


_REPORT: Final = "Report it as a bug, with the traceback."
_CATALOG: Final = (
    "Check that the catalog (PostgreSQL, or the disk of the data directory) is reachable and not overloaded."
)
_VERIFY: Final = (
    "Run `millpond pipeline verify`, which lists lost and damaged objects; restore them from a backup."
)

EVENTS: Final[Mapping[str, Explanation]] = {
    # -- broker -----------------------------------------------------------------------------------------------
    "unexpected error in a service; broker is shutting down": Explanation(
        "A background service (maintenance, groups, subscriptions, cluster membership) ended with an unexpected "
        "error. The broker cannot run without it and stops, with what was accepted made durable.",
        f"Start the broker again; a supervisor (`--workers`, systemd, Docker) does it for you. {_REPORT}",
    ),
    "unexpected error while an interface stopped": Explanation(
        "The broker is stopping, and closing the interface (Kafka, gRPC or HTTP) failed. The stop continues: what "
        "was accepted is still made durable.",
        f"Nothing has to be repaired. {_REPORT}",
    ),
    "other users can open the data directory": Explanation(
        "Security is on, and the data directory `path` can be opened by other users of this machine. It contains "
        "messages and, with an SQLite catalog, users, ACLs and the secrets of the cluster: with them, brokers are "
        "bypassed.",
        "`chmod 700` the directory. If jobs of other users need it (Spark), give it to a group of their own.",
    ),
    # -- cli --------------------------------------------------------------------------------------------------
    "declared dead; rejoining the cluster": Explanation(
        "Another process declared this broker dead and took over its partitions. Usually the broker did not renew "
        "its lease in time: its process or machine was paused, out of memory or CPU, or cut off from the catalog "
        "for longer than the setting `lease`. A second broker on the same address or data directory does it, too.",
        "Nothing right now: the broker rejoins by itself, on the same ports. If it happens again, find what "
        "stalls the machine (swapping, CPU limits, suspended containers, network), or raise `lease` on all "
        "brokers.",
    ),
    "deprecated setting used; use its new name": Explanation(
        "A setting was given under its former name `setting`, in the place that `source` names. The broker uses "
        "its value as that of `replacement`; a later version will not know the former name.",
        "Rename `setting` to `replacement` in `source`; the warning ends with the next start of the broker. The "
        "[settings](settings.md) page lists former names.",
    ),
    "rejoining the cluster failed; will retry": Explanation(
        "The broker lost its lease and cannot join again, because the catalog or the store is unavailable.",
        f"{_CATALOG} Check the object store, too. It tries again every second, until it succeeds or is stopped.",
    ),
    "worker could not be removed; takeover waits for its lease to expire": Explanation(
        "A worker of `millpond serve --workers` died, and the supervisor could not record that in the catalog. "
        "Its partitions are unavailable until its lease expires (setting `lease`, 6 s by default).",
        f"{_CATALOG} The worker is restarted anyway.",
    ),
    "worker is down; will restart it": Explanation(
        "A worker process of `millpond serve --workers` exited (`reason` has its exit code or signal), or could "
        "not be started. It is started again after `delay_s`, which doubles with each failure up to 30 s. Other "
        "workers take over meanwhile.",
        "Read what the worker logged before this line. SIGKILL without a cause in the log usually comes from the "
        "kernel, for lack of memory: look into `dmesg`, and use fewer workers or smaller `tail_bytes_max` and "
        "`cache_bytes_max`.",
    ),
    "worker sent malformed status": Explanation(
        "A worker printed a line on stdout that is not the status its supervisor expects. The worker keeps "
        "running.",
        "Find what else prints to stdout in that process, such as a debugging aid or an import hook. If no status "
        "arrives at all, the supervisor never reports that its workers are ready.",
    ),
    # -- client -----------------------------------------------------------------------------------------------
    "message handler failed": Explanation(
        "Your handler raised an exception for this message. Unless the handler had acknowledged it, it is "
        "negatively acknowledged: it is redelivered after the subscription's backoff, or becomes a dead letter "
        "after its last attempt.",
        "Fix the handler; the traceback shows where. `millpond subscription redrive` brings dead letters back.",
    ),
    "unexpected error in group heartbeat; will retry": Explanation(
        "The client library has a bug. A consumer in this group could not send a heartbeat; if that does not end, its "
        "session expires, and other members read its partitions.",
        _REPORT,
    ),
    "unexpected error in producer; it cannot continue": Explanation(
        "The client library has a bug. Every send of this producer fails from now on, also those that are in "
        "flight.",
        f"Create a new producer. {_REPORT}",
    ),
    "unexpected error in subscriber; it cannot continue": Explanation(
        "The client library has a bug. Iteration over this subscriber ends with an error.",
        f"Create a new subscriber; unacknowledged messages are redelivered. {_REPORT}",
    ),
    # -- cluster ----------------------------------------------------------------------------------------------
    "broker lease expired; taking over its partitions": Explanation(
        "The broker with this number did not renew its lease: it died, was paused, or is cut off from the "
        "catalog. The remaining brokers own its partitions now.",
        "See why it is gone: `millpond cluster status`, and its own log. Nothing that was acknowledged is lost. "
        "If it was only paused, it rejoins by itself.",
    ),
    "lease renewal failed; will retry": Explanation(
        "The catalog did not accept or answer the renewal of this broker's lease. If that lasts longer than the "
        "setting `lease`, the broker stops serving until a renewal succeeds, and other brokers that reach the "
        "catalog take over.",
        _CATALOG,
    ),
    "partitions not handed over before stop": Explanation(
        "The broker is stopping and could not hand all its partitions to others within 10 s, or the catalog "
        "failed.",
        "Nothing: the others take over what is left when this broker has stopped, at the latest when its lease "
        "expires. If it happens at every stop, look at how long flushes take (`millpond_log_flush_seconds`).",
    ),
    "rebalancing partitions failed; will retry": Explanation(
        "The catalog failed, or partitions that should move to another broker did not finish their work within 10 "
        "s. They stay where they are.",
        f"{_CATALOG} If only this keeps failing, look for slow flushes (`millpond_log_flush_seconds`).",
    ),
    # -- frontends --------------------------------------------------------------------------------------------
    "Kafka connection refused; connection limit reached": Explanation(
        "As many Kafka clients are connected as the setting `connections_max` allows, and one more was turned "
        "away.",
        "Find clients that open connections without closing them (`client` is the address of the one that was "
        "refused), or raise `connections_max` together with the process's limit of open files.",
    ),
    "consumer idle; detaching": Explanation(
        "A consumer of a subscription over gRPC has not read from its stream for `timeout_ms`. It is detached, "
        "and the messages it held are delivered to others.",
        "See whether the consumer hangs: a handler that blocks its event loop is the usual cause. It may attach "
        "again at any time.",
    ),
    "defect found in HTTP request": Explanation(
        "The broker reached a state that its code rules out, while it handled this request. The client got 500.",
        _REPORT,
    ),
    "payload download aborted": Explanation(
        "The object store failed while the body of a message was sent over HTTP. The client sees fewer bytes than "
        "announced.",
        "Clients may simply repeat the download. If it keeps failing, check the object store.",
    ),
    "unexpected error in HTTP request": Explanation(
        "The request failed with an unexpected error. The client got 500; other requests are not affected.",
        _REPORT,
    ),
    "unexpected error in Kafka request; closing connection": Explanation(
        "A request of this client failed with an unexpected error. Its connection is closed, so that the client "
        "retries; other clients are not affected.",
        _REPORT,
    ),
    "unexpected error in acknowledgements; detaching consumer": Explanation(
        "Acknowledgements of a consumer over gRPC failed with an unexpected error. It is detached, and what it "
        "had not acknowledged is redelivered.",
        _REPORT,
    ),
    "unexpected error in gRPC request": Explanation(
        "The call failed with an unexpected error. The client got INTERNAL; other calls are not affected.",
        _REPORT,
    ),
    # -- groups -----------------------------------------------------------------------------------------------
    "group expiry failed; will retry": Explanation(
        "Offsets and groups that are past `offsets_retention` could not be removed from the catalog. Nothing else "
        "is affected.",
        _CATALOG,
    ),
    "saving group failed": Explanation(
        "A new generation of the consumer group could not be saved. Its members get a retriable error and join "
        "again.",
        f"{_CATALOG} Members that keep rejoining show the same trouble on their side.",
    ),
    "unexpected error in group expiry; will retry": Explanation(
        "Expiring groups failed unexpectedly, perhaps because of a damaged row. Groups work.",
        _REPORT,
    ),
    "unexpected error in group; reloading it": Explanation(
        "A timer of this consumer group failed with an unexpected error. The group is read from the catalog again "
        "at the next request; other groups are not affected.",
        _REPORT,
    ),
    # -- log --------------------------------------------------------------------------------------------------
    "catalog failed; broker is shutting down": Explanation(
        "The disk of the SQLite catalog failed, or the catalog is older than what it confirmed before "
        "(`CatalogWentBack`), as after a restore or a failover to a replica that lagged. The broker can no longer "
        "tell what is durable, and stops.",
        "Disk: check the disk and the kernel's log, then start the broker again. `CatalogWentBack`: stop all "
        "brokers before anything else, and decide about the lost commits ([several "
        "brokers](../how-to/cluster.md#when-something-is-away)).",
    ),
    "catalog refresh failed; will retry": Explanation(
        "The broker noticed that another process changed the catalog and could not read what. Until it can, it "
        "does not know of topics, partitions and records that others created meanwhile.",
        _CATALOG,
    ),
    "catalog went back in time; partition halted": Explanation(
        "The catalog has an older state of this partition than one that the broker has seen, as after a failover "
        "to a replica that lagged, or a restore of an old backup. Going on would assign offsets a second time, so "
        "the partition serves nothing until the broker is restarted.",
        "Stop all brokers before you do anything else: the halt is not stored, and after a restart the partition "
        "continues at the end that the catalog has now. See [several "
        "brokers](../how-to/cluster.md#when-something-is-away).",
    ),
    "session fenced; broker stops writing": Explanation(
        "A commit was refused because this broker was declared dead, usually because its lease had expired. Nothing "
        "of that commit was stored or acknowledged.",
        "Nothing right now: `millpond serve` rejoins by itself and logs `declared dead; rejoining the cluster`. A "
        "`Broker` inside your own program has to be started again.",
    ),
    "transaction maintenance failed; will retry": Explanation(
        "Aborting transactions that timed out, or expiring unused transactional ids, failed. Until it works, "
        "readers with `read_committed` may wait behind an abandoned transaction.",
        _CATALOG,
    ),
    "unexpected error in check for foreign commits": Explanation(
        "The broker could not find out whether another process wrote to the catalog, and its own commits "
        "continue. Records of others, such as Spark jobs, may become visible late.",
        _REPORT,
    ),
    "unexpected error in commit": Explanation(
        "A commit to the catalog failed with an unexpected error. Everything in it was refused with a retriable "
        "error; later commits are not affected.",
        _REPORT,
    ),
    "unexpected error in commit callback": Explanation(
        "A commit succeeded or failed, and the code that waited for it raised an error. Its client may wait until "
        "it times out.",
        _REPORT,
    ),
    "unexpected error in flush": Explanation(
        "Storing the bytes of a flush failed with an unexpected error. Its appends were refused with a retriable "
        "error.",
        f"Check the store's disk or service first. {_REPORT}",
    ),
    "unexpected error in transaction maintenance; will retry": Explanation(
        "Aborting transactions that timed out, or expiring unused transactional ids, failed with an unexpected "
        "error.",
        _REPORT,
    ),
    "unexpected error while applying a commit": Explanation(
        "A commit is durable, but the broker failed to update its memory with it. The client got an error "
        "although the change was made, and this broker may serve an older state.",
        f"Restart the broker: it reads everything from the catalog again. {_REPORT}",
    ),
    # -- maintenance ------------------------------------------------------------------------------------------
    "compaction failed; will retry": Explanation(
        "The partition could not be compacted, most often because one of its objects is damaged or missing. It "
        "stays readable as it is and grows; other partitions are compacted.",
        _VERIFY,
    ),
    "maintenance failed; will retry": Explanation(
        "The catalog or the store was unavailable during a pass of this duty (retention, merging, compaction, "
        "garbage, payloads or expiry). The next pass starts over.",
        f"{_CATALOG} Check the object store, too. If it lasts, the disk fills: watch "
        "`millpond_maintenance_failures`.",
    ),
    "merging failed; will retry": Explanation(
        "Small extents of the partition could not be merged, most often because one of its objects is damaged or "
        "missing. Other partitions are merged; this one is read more slowly.",
        _VERIFY,
    ),
    "not enough room on the disk; maintenance waits": Explanation(
        "Merging, compaction or the examination of old extents needs `needed_bytes` on a disk that has only "
        "`free_bytes`, after the reserve. Logged once; the duty continues as soon as there is space.",
        "Free space, or add some: [the disk is full](../how-to/full-disk.md).",
    ),
    "object missing; extent expires by its catalog row": Explanation(
        "The catalog refers to an object that is not in the store: its records are lost. It was deleted outside "
        "of Millpond, or the store was restored to an older state than the catalog.",
        f"{_VERIFY} Look for lifecycle rules or clean-up jobs on the bucket or the data directory.",
    ),
    "payload collection skipped; topic has unreadable messages": Explanation(
        "Messages of the topic are damaged or cannot be decoded, so the broker cannot tell which payloads they "
        "refer to. It deletes none of that topic.",
        f"{_VERIFY} Until then the topic's payloads use space and nothing else.",
    ),
    "retention failed; will retry": Explanation(
        "Old records of the partition could not be deleted, most often because one of its objects is damaged. "
        "Other partitions expire as usual. It is tried again within half a minute.",
        f"{_VERIFY} To delete the damaged part at once, use `DeleteRecords` of a Kafka client.",
    ),
    "undecodable batches kept by compaction": Explanation(
        "The partition has `batches` record batches that cannot be decompressed or decoded. Compaction copies "
        "them as they are, so older records with the same keys may remain.",
        "Find the producer that wrote them: consumers cannot read them, either. They go when `cleanup.policy` "
        "includes `delete` and they expire, or with `DeleteRecords`.",
    ),
    "unexpected error in maintenance; will retry": Explanation(
        "A pass of this duty failed with an unexpected error. The other duties continue.",
        f"Watch `millpond_maintenance_failures` and the disk while it fails. {_REPORT}",
    ),
    "wall clock is back; retention resumed": Explanation(
        "The wall clock agrees with the monotonic clock again, after a jump that had paused retention. No action "
        "is needed.",
        "Find out what set the clock, so that it does not happen again.",
    ),
    "wall clock jumped before this machine started; retention paused": Explanation(
        "Retention was paused because of a clock jump, and the machine has been restarted since: there is nothing "
        "left to compare the clock with. Nothing is deleted by age.",
        "Check the clock (`timedatectl`). If it is right, start the broker once with `--trust-clock`. See [when a "
        "broker has paused retention](../how-to/maintenance.md#when-a-broker-has-paused-retention).",
    ),
    "wall clock jumped; retention paused": Explanation(
        "The wall clock moved by `jump_s` seconds (more than five minutes) against the monotonic clock. So that a "
        "wrong clock deletes nothing, everything that goes by age is paused, also across restarts.",
        "Check the clock (`timedatectl`, NTP). Set it right, and retention resumes by itself. If the new time is "
        "the right one, start the broker once with `--trust-clock`. See [when a broker has paused "
        "retention](../how-to/maintenance.md#when-a-broker-has-paused-retention).",
    ),
    # -- objects ----------------------------------------------------------------------------------------------
    "disk full; reserve released, appends refused": Explanation(
        "The disk of the catalog is full. Its reserve was released, so that deleting still works, and appends are "
        "refused with a retriable error until there is space.",
        "Free space: delete topics, shorten their retention, or remove what is not Millpond's. Do not delete "
        "files of the data directory. See [the disk is full](../how-to/full-disk.md).",
    ),
    "disk reserve could not be released": Explanation(
        "The disk is full, and emptying the reserve failed. Without it even deleting may fail with `CatalogFull`.",
        "Free space by removing what is not Millpond's. Check that the broker's user may write to the data "
        "directory.",
    ),
    "fsync failed; file abandoned": Explanation(
        "The disk did not confirm that a journal file is durable. Appends of that flush were refused with a "
        "retriable error; the next flush uses a new file. What was acknowledged before is not affected.",
        "Check the disk and the kernel's log (`dmesg`, SMART) now: a disk that fails an fsync often fails for "
        "good soon.",
    ),
    "no room for the disk reserve": Explanation(
        "The disk has less free space than the reserve takes (`needed_bytes`, setting `disk_reserve`). The broker "
        "runs without one: on a full disk it could not delete anything. Logged once.",
        "Free space; the reserve is made by itself then. See [the disk is full](../how-to/full-disk.md).",
    ),
    "room on the disk again; appends accepted": Explanation(
        "The disk had been full, and has space again: the reserve is back and appends are accepted.",
        "Find out what had filled the disk, before it does again: [the disk is full](../how-to/full-disk.md).",
    ),
    "store operation failed; will retry": Explanation(
        "A call to the object store failed: the service or the network was unavailable, throttled or too slow. It "
        "is repeated with backoff, up to six attempts within a minute.",
        "Single lines are normal on remote stores. If they persist, check the service, the network, credentials "
        "and request limits; watch `millpond_store_retries` and `millpond_store_errors`.",
    ),
    # -- queues -----------------------------------------------------------------------------------------------
    "acknowledgements not saved in time; messages will be redelivered": Explanation(
        "The broker stopped, or handed over partitions, and the catalog did not accept the last acknowledgements "
        "within `timeout_ms`. The messages concerned are delivered again.",
        f"Nothing, if your consumers tolerate duplicates, as at-least-once delivery requires. {_CATALOG}",
    ),
    "appending dead letters failed; will retry": Explanation(
        "Dead letters could not be appended to their topic: it cannot be created, or the catalog or the store is "
        "unavailable. They are kept in the catalog; none is lost.",
        "See `error`: create the topic, make room for it, or restore the store.",
    ),
    "committing a subscription transaction failed": Explanation(
        "The catalog or the store was unavailable when a consumer committed acknowledgements together with new "
        "messages. After eight attempts the client gets the error, and neither part is stored.",
        _CATALOG,
    ),
    "dead letter rejected by its topic; will retry": Explanation(
        "The dead letter topic does not accept this message, usually because its `max.message.bytes` is smaller "
        "than that of the source topic, or it does not accept payloads by reference. The letter stays in the "
        "catalog.",
        "Raise `max.message.bytes` of `topic`, or set its `payload` as the source topic has it: `millpond topic "
        "alter`. `source_partition` and `source_offset` are where the message is.",
    ),
    "moving dead letters failed; will retry": Explanation(
        "Dead letters could not be read from the catalog. They stay there until it works; none is lost.",
        _CATALOG,
    ),
    "reading for subscription failed; will retry": Explanation(
        "The partition could not be read for this subscription, because the catalog or the store is unavailable. "
        "Delivery from it pauses.",
        f"{_CATALOG} Check the object store, too.",
    ),
    "releasing exclusive subscription failed; will retry": Explanation(
        "The consumer of an exclusive subscription has left, and the broker could not record that in the catalog. "
        "Other consumers are refused (`SubscriptionBusy`) until it can.",
        _CATALOG,
    ),
    "saving acknowledgements failed; will retry": Explanation(
        "The catalog did not accept acknowledgements of subscriptions. Consumers wait for their confirmation; "
        "nothing is lost, but after a crash now these messages would be redelivered.",
        _CATALOG,
    ),
    "too many unacknowledged messages; reading ahead paused": Explanation(
        "The subscription has `messages` messages of this partition in progress, or the oldest unacknowledged "
        "one, at `offset`, lies too far back. New messages are not delivered until older ones are acknowledged. "
        "Logged once.",
        "See who holds them: `millpond subscription describe TOPIC NAME` ([see what does not "
        "move](../how-to/queue.md#see-what-does-not-move)). Add consumers, acknowledge sooner, or free a blocked "
        "key.",
    ),
    "undecodable batch skipped by subscriptions": Explanation(
        "A record batch from `offset` to `last_offset` cannot be decompressed or decoded. Subscriptions skip it, "
        "since it would stop everything behind it; its messages are not delivered.",
        "Find the producer that wrote it: other consumers cannot read it, either. The bytes stay in the log until "
        "they expire.",
    ),
    "unexpected error in subscription state; detaching consumers": Explanation(
        "The dispatching state of this partition is inconsistent. Its consumers are detached and may attach "
        "again, which reads the state from the catalog.",
        _REPORT,
    ),
    "unexpected error in subscription task": Explanation(
        "A background task of a subscription ended with an unexpected error. The partition it served may not be "
        "delivered any more.",
        f"Restart the broker if a subscription makes no progress (`millpond subscription describe`). {_REPORT}",
    ),
    "unexpected error in subscription; detaching consumers": Explanation(
        "Delivery from this partition failed with an unexpected error. Its consumers are detached and may attach "
        "again; unacknowledged messages are redelivered.",
        _REPORT,
    ),
    "unexpected error while moving dead letters; will retry": Explanation(
        "Moving dead letters to their topics failed with an unexpected error. They stay in the catalog.",
        _REPORT,
    ),
    "unexpected error while saving acknowledgements; detaching consumers": Explanation(
        "Acknowledgements could not be saved because of an unexpected error. The consumers concerned are "
        "detached, and messages whose acknowledgement was not confirmed are redelivered.",
        _REPORT,
    ),
    "unexpected error while updating subscription; will retry": Explanation(
        "The broker could not compare this subscription with the catalog, because of an unexpected error. "
        "Delivery continues; changes of the subscription do not take effect here.",
        _REPORT,
    ),
    "updating subscription failed; will retry": Explanation(
        "The broker could not compare this subscription with the catalog. Delivery continues; partitions that "
        "moved here, and changes of the subscription, do not take effect yet.",
        _CATALOG,
    ),
    # -- security ---------------------------------------------------------------------------------------------
    "reading users and ACLs failed; will retry": Explanation(
        "The broker could not read the users, tokens, ACLs and sessions from the catalog. It uses those that it has "
        "read before, so a revocation may not have reached it.",
        f"{_CATALOG} It tries again twice a second.",
    ),
    "identity provider failed": Explanation(
        "A user could not log in with OIDC: the provider of `oidc_issuer` did not respond, or not as it should.",
        "Check the error, that the provider runs and its certificate is trusted, and `oidc_client_id` and "
        "`oidc_client_secret` if its token endpoint responds with status 401. Sessions that exist are not affected.",
    ),
    "reading the sizes of topics failed; will retry": Explanation(
        "The broker could not read from the catalog how many bytes topics with a quota have stored. Until it can, it "
        "refuses the appends that it refused before, and accepts the others.",
        f"{_CATALOG} It tries again every two seconds.",
    ),
    "loading the JWK set failed; will retry": Explanation(
        "The keys of `oauth_jwks`, or those of the provider of `oidc_issuer`, could not be read, or none of them can "
        "verify a token. The broker uses the keys it has loaded before, for up to a day; then it refuses all JWTs.",
        "Check the URL or file, that the server responds with status 200 and no redirect, and that its certificate is "
        "trusted. The broker tries again when a client sends a JWT, at most once in ten seconds.",
    ),
    "certificate not reloaded; keeping the current one": Explanation(
        "A file of `tls_certificate`, `tls_key` or `tls_client_ca` has changed, or SIGHUP was received, and the files "
        "cannot be used for the `reason` that the event names. New connections still get the certificate of before.",
        "Correct the files before the current certificate expires. The broker looks every 10 s; `kill -HUP` makes it "
        "look at once, and log the reason again.",
    ),
    "connections cannot be accepted; will retry": Explanation(
        "The system refused to accept a connection, usually because the process has no file descriptors left.",
        "Raise the limit of open files (`ulimit -n`, or `LimitNOFILE` of systemd), or lower `connections_max`.",
    ),
    "listening beyond this machine without security and TLS, because insecure is set": Explanation(
        "The broker listens on `address`, which other machines can reach. Either clients do not authenticate, and all "
        "of them may do everything, or passwords cross the network unencrypted. The metric `millpond_insecure` is 1.",
        "Run `millpond security init`, and start the broker with the settings that it writes, without `insecure` "
        "([security](../how-to/security.md)).",
    ),
    # -- service ----------------------------------------------------------------------------------------------
    "reading usage for metrics failed; will retry": Explanation(
        "The page of metrics was requested, and the catalog could not be read. The metrics `millpond_topic_*`, "
        "`millpond_group_lag` and `millpond_subscription_lag` are missing from it.",
        f"{_CATALOG} The next request, 5 s later or more, reads again.",
    ),
    "writing the audit topic failed; will retry": Explanation(
        "The broker could not append to the topic `__audit`. Up to 10,000 events wait; further ones are missing from "
        "the topic, and the metric `millpond_audit_dropped` counts them. The log on stderr has all of them.",
        f"{_CATALOG} It tries again every second.",
    ),
    "audit event refused; left out of the topic": Explanation(
        "The log refused an event of the audit log as invalid, for example because the clock of the machine has jumped "
        "and the event lies too far in the past or future. The topic `__audit` lacks it; the metric "
        "`millpond_audit_dropped` counts it. The log on stderr has it.",
        "If the error names timestamps, check the clocks of the brokers.",
    ),
    # -- spark ------------------------------------------------------------------------------------------------
    "batch was committed before; nothing appended": Explanation(
        "The sink has already stored a batch of this number, or a later one, from another attempt or query. The "
        "rows of this batch were not stored.",
        "Normal after a query was restarted. If it goes on, two queries share the name of a sink, or a checkpoint "
        "was deleted or set back: give the query a sink of its own ([Spark sink](spark-sink.md)).",
    ),
    "limit per trigger ignored in a batch read": Explanation(
        "A batch read was given an option that limits how much a stream reads per trigger. The whole range is "
        "read.",
        "Remove the option, or set `startingOffsets` and `endingOffsets`.",
    ),
    "records were lost": Explanation(
        "Records that should have been read are gone: they expired before they were read, or the topic was "
        "deleted. With `failOnDataLoss=false` reading continues without them.",
        "Raise the topic's `retention.ms`, or run the query more often. With `failOnDataLoss=true` it stops "
        "instead ([Spark source](spark-source.md)).",
    ),
    "run lease renewal failed; will retry": Explanation(
        "A pipeline could not renew its entry in the catalog. The run continues; `millpond pipeline history` "
        "shows it as interrupted if it takes long.",
        _CATALOG,
    ),
    "unexpected error in pipeline; will retry": Explanation(
        "One duty of `millpond pipeline run` failed with an error of Spark, or with an unexpected one. The other "
        "duties continue, and it is tried again in the next round.",
        "Follow the traceback: errors of Spark are usually about memory, Java or the master. Report others as "
        "bugs.",
    ),
}

FIELDS: Final[Mapping[str, str]] = {
    "address": "Addresses on which the broker listens.",
    "attempt": "Number of the attempt that failed, from 1.",
    "batch": "Number of a batch of a Spark query.",
    "batches": "Number of record batches.",
    "broker": "Number of a broker, as in `millpond cluster status`; its session if the number is not known.",
    "brokers": "Numbers of brokers, with commas between.",
    "change": "What was changed: an event of the [audit log](audit.md).",
    "client": "Address of a client.",
    "consumer": "Name of a consumer of a subscription.",
    "delay_s": "Seconds until the next attempt.",
    "denials": "Number of requests without the right.",
    "duration_ms": "How long it took, in milliseconds.",
    "duty": "Which periodic task: a duty of maintenance, of transactions or of a pipeline.",
    "error": "What went wrong, as the error says it.",
    "expires_in_s": "Seconds until a certificate expires.",
    "failures": "Number of failed logins.",
    "free_bytes": "Bytes that are free on the disk.",
    "freed_bytes": "Bytes by which a partition became smaller.",
    "group": "Id of a consumer group.",
    "header": "Name of a header of a message.",
    "hint": "What to do next.",
    "interface": "`kafka`, `grpc` or `http`.",
    "jump_s": "Seconds by which the wall clock moved; negative if it went back.",
    "last_offset": "Offset of the last message concerned.",
    "limit": "The limit that was reached.",
    "messages": "Number of messages.",
    "method": "How a client authenticated: a SASL mechanism, Basic, Bearer or a certificate.",
    "needed_bytes": "Bytes that are needed on the disk.",
    "object": "Key of an object in the store.",
    "objects": "Number of objects in the store.",
    "offset": "Offset of the first message concerned.",
    "operation": "Operation of the object store.",
    "option": "Name of an option of a Spark read.",
    "partition": "Number of a partition.",
    "partitions": "Number of partitions.",
    "path": "A directory or a file.",
    "payload": "Id of a payload.",
    "payloads": "Number of payloads.",
    "principal": "Who sent the request, such as `User:alice`.",
    "reason": "Why it happened.",
    "records_kept": "Number of records that compaction kept.",
    "records_read": "Number of records that compaction read.",
    "replacement": "Current name of a setting.",
    "request": "The request: method and path over HTTP, full name of the method over gRPC.",
    "session": "Id of one run of a broker or job; part of the keys of the objects it stored.",
    "setting": "Name of a setting, as it was given.",
    "sink": "Name of a Spark sink.",
    "source": "Where a setting was given: `--set`, an environment variable, or the path of a file.",
    "source_offset": "Offset of a dead letter's message in the topic it came from.",
    "source_partition": "Partition of a dead letter's message in the topic it came from.",
    "subject": "The name of what was changed: a user, token, ACL, quota, topic or broker.",
    "subscription": "Name of a subscription.",
    "timeout_ms": "The time that was allowed, in milliseconds.",
    "topic": "Name of a topic; its id if the topic is gone.",
    "transactional_id": "Transactional id of a producer.",
    "unlogged": "Number of lines of this kind that were left out before this one, because there were too many.",
    "worker": "Number of a worker of `millpond serve --workers`, from 0.",
}
