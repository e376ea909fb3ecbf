"""The shape of the code: layers, public names, the tree of errors."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.each import for_each

import millpond
import millpond.client
import millpond.errors
import millpond.groups
import millpond.log
import millpond.protocol
import millpond.queues
import millpond.records
import millpond.service
import millpond.testing
from millpond.model import errors
from millpond.model.errors import MillpondError

ROOT = Path(__file__).parents[2]

PUBLIC = {
    millpond: [
        *("AppendResult", "Broker", "FetchRequest", "FetchResult", "MillpondError", "Record", "Settings"),
        *("TopicPartition", "__version__", "Admin", "AsyncAdmin", "AsyncConsumer", "AsyncProducer"),
        *("Consumer", "Message", "Placed", "Polled", "Producer"),
        *("AsyncPayloads", "PayloadReference", "Payloads"),
        *("AsyncDelivery", "AsyncPublisher", "AsyncSubscriber", "Delivery", "Outcome", "Publisher"),
        *("Subscriber", "Tls", "errors"),
    ],
    millpond.errors: [
        *("CatalogFailed", "CatalogFull", "CatalogUnavailable", "Conflict", "CorruptBatch"),
        *("CorruptCatalog", "CorruptObject", "CorruptPayload", "Damaged", "Defect", "Fenced"),
        *("FlushFailed", "GroupError", "GroupInUse", "GroupNotEmpty", "GroupSubscribed"),
        *("InvalidArgument", "InvalidConfig", "InvalidGroupId", "InvalidInput", "InvalidPartitionCount"),
        *("InvalidPayload", "InvalidRecord", "InvalidRequest", "InvalidSubscription", "InvalidTimestamp"),
        *("InvalidTopicName", "MillpondError", "NotCoordinator", "NotFound", "NotOwner", "ObjectMissing"),
        *("OffsetOutOfRange", "OutOfOrderSequence", "OutcomeUnknown", "Overloaded", "PartitionHalted"),
        *("PayloadExists", "PayloadTooLarge", "PayloadsNotTaken", "ProducerFenced", "RecordTooLarge"),
        *(
            "StaleDelivery",
            "Stopping",
            "StorageQuotaExceeded",
            "StoreFull",
            "StoreUnavailable",
            "SubscriptionBusy",
        ),
        *("SubscriptionDiffers", "SubscriptionExists", "SubscriptionReplaced", "TimedOut", "TopicExists"),
        *("TopicReplaced", "Unavailable", "UnknownConsumer", "UnknownGroup", "UnknownPartition"),
        *("UnknownPayload", "UnknownSubscription", "UnknownTopic", "Unreachable", "UnreadableBatch"),
        *(
            "UnsupportedCompression",
            "QuotaExceeded",
            "WriterDead",
            "AuthenticationFailed",
            "NotAuthenticated",
            "NotAuthorized",
        ),
        *("TopicNotAuthorized", "GroupNotAuthorized", "ClusterNotAuthorized", "TransactionalIdNotAuthorized"),
        *("InvalidAcl", "InvalidCredential", "UnknownUser", "UnknownToken"),
    ],
    millpond.client: [
        *("Admin", "AsyncAdmin", "AsyncConsumer", "AsyncProducer", "BrokerDescription", "Config", "Consumer"),
        *("Group", "GroupDescription", "GroupPosition", "Member", "Message", "Partition", "Placed", "Polled"),
        *("Producer", "Sent", "Topic", "TopicDescription", "AsyncPayloads", "PayloadReference", "Payloads"),
        *("Acknowledgement", "AsyncDelivery", "AsyncPublisher", "AsyncSubscriber", "AsyncTransaction"),
        *("Delivery", "Metadata", "Outcome", "Publisher", "Subscriber", "Subscription", "Transaction"),
        *(
            "SubscriptionConsumer",
            "SubscriptionFailure",
            "SubscriptionKey",
            "SubscriptionPartition",
            "SubscriptionState",
        ),
        *("Cluster", "ClusterBroker", "Tls"),
        *("AclEntry", "CreatedToken", "QuotaDescription", "TokenDescription", "UserDescription"),
    ],
    millpond.service: [
        *("Administration", "GroupDetails", "GroupPartition", "MessageWriter", "Owners", "StoredMessage"),
        *("BrowserLogin", "OidcCallback", "ShareGroups", "TopicPositions"),
        *(
            "PartitionDescription",
            "PollRequest",
            "PollResult",
            "Poller",
            "SecurityAdministration",
            "UserMechanism",
            "ServiceLimits",
            "ReadPosition",
            "OLDEST",
        ),
        *(
            "TopicDetails",
            "Workers",
            "PayloadBody",
            "PayloadLimits",
            "PayloadTransfers",
            "TransferTarget",
            "NewMessage",
            "AppendIndex",
            "AuditTopic",
            "AuditedTopicChanges",
        ),
        *("BrokerStatus", "ClusterAdministration", "ClusterStatus", "ConfigAdministration", "Leader"),
        "MetricsPage",
    ],
    millpond.queues: [
        *(
            "ActiveSubscription",
            "AckResult",
            "Attachment",
            "ConsumerStatus",
            "Deliveries",
            "EARLIEST",
            "Event",
        ),
        *(
            "PartitionLost",
            "PartitionStatus",
            "QueueLimits",
            "Queues",
            "Revocation",
            "SubscriptionStart",
            "StartAt",
            "SharePosition",
            "ShareSubscriptions",
        ),
        *("SubscriptionStatus", "PullConsumers", "Pulled", "PullerName"),
        *(
            "AckRange",
            "AckRefusal",
            "MemberName",
            "QueueDelivery",
            "ShareConsumers",
            "all_saved",
            "malformed",
        ),
    ],
    millpond.groups: [
        *("CONSUMER", "NO_MEMBER", "CommitSender", "CommittedOffsets", "ConsumerGroupDescription"),
        *("ConsumerHeartbeat", "ConsumerHeartbeatResponse", "Description", "GroupLimits"),
        *("SHARE", "ShareGroupDescription", "ShareHeartbeat", "ShareHeartbeatResponse"),
        *("ShareMemberDescription",),
        *("GroupListing", "GroupPhase", "Groups", "JOIN_EPOCH", "JoinRequest", "Joined"),
        *("LeaveRequest", "MemberDescription", "Protocol", "SyncRequest", "Synced"),
        "assigned_partitions",
    ],
    millpond.log: [
        *(
            "AppendResult",
            "AppendRole",
            "CatalogRole",
            "FetchRequest",
            "FetchResult",
            "FetchRole",
            "Log",
            "LogLimits",
            "TransactionalProducer",
            "ProducerEpoch",
        ),
        *("TimedOffset", "TransactionLimits", "Transactions", "Upkeep", "Writer"),
    ],
    millpond.records: [
        *(
            "HEADER_SIZE",
            "NO_OFFSET",
            "NO_TIMESTAMP",
            "BatchHeader",
            "Buffer",
            "Codec",
            "Header",
            "ControlMarker",
        ),
        *("MarkerKind", "Record", "build_batch", "build_control_batch", "check_crc", "compress", "crc32c"),
        *("RecordTimes", "each_time", "read_times", "set_max_timestamp"),
        *(
            "decompress",
            "encoded_size_max",
            "iter_records",
            "read_header",
            "read_marker",
            "recompress",
            "stamp",
            "stamp_run",
            "validate",
            "walk",
        ),
        "with_append_time",
    ],
    millpond.protocol: [
        "FRAME_BYTES_MAX",
        "LENGTH_BYTES",
        "NO_UUID",
        "REQUESTS",
        "Encoded",
        "ErrorCode",
        "WireMessage",
        "Request",
        "RequestHeader",
        "Response",
        "Versions",
        "decode",
        "encode",
        "encode_request",
        "encode_response",
        "frame_length",
        "read_request_header",
        "read_response_header",
        "request_header_version",
        "response_header_version",
    ],
    millpond.testing: ["Faults", "FaultyStore", "Hold", "Millpond", "SimulatedClock", "running_broker"],
}


def test_imports_only_go_down_the_stack():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KEPT" in done.stdout


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_names_change_only_on_purpose(module):
    assert sorted(module.__all__) == sorted(PUBLIC[module])
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_the_stubs_are_what_the_schemas_make():
    spec = importlib.util.spec_from_file_location("generate_stubs", ROOT / "proto/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, content in module.generate().items():
        assert (ROOT / "src/millpond/stubs" / name).read_text() == content, "run `make stubs`"


def test_a_client_does_not_load_the_broker():
    code = "import millpond, sys; millpond.Producer; assert 'millpond.broker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_folder_of_the_package_is_in_the_layers():
    """A new folder without a place in the stack would be checked by nobody."""
    config = (ROOT / "pyproject.toml").read_text()
    layers = config.partition("layers = [")[2].partition("]")[0]
    packages = [path.parent.name for path in (ROOT / "src/millpond").glob("*/__init__.py")]
    for name in packages:
        assert f'"{name}"' in layers or f" {name}" in layers or f"{name} " in layers, name


def error_classes():
    return [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MillpondError)
    ]


BROKERS_OWN = {
    "CannotStart",
    "CatalogWentBack",
    "DataDirectoryLocked",
    "DataDirectoryUnusable",
    "EpochAhead",
    "ExtentsChanged",
    "FencedInstance",
    "FencedMemberEpoch",
    "GroupFull",
    "IdentityProviderUnavailable",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InvalidProducerIdMapping",
    "InvalidRegularExpression",
    "InvalidSessionTimeout",
    "InvalidSettings",
    "InvalidTransactionState",
    "InvalidTransactionTimeout",
    "MalformedMessage",
    "MemberIdRequired",
    "NewerSchema",
    "NotInstalled",
    "ObjectExists",
    "OffsetMetadataTooLarge",
    "PortUnavailable",
    "RebalanceInProgress",
    "StaleEpoch",
    "StaleMemberEpoch",
    "UnknownMember",
    "UnreleasedInstance",
    "UnsafeDatabase",
    "UnstableOffsets",
    "UnsupportedAssignor",
}
"""Errors that no call of the client library raises: of brokers that start, of Kafka's group protocol and transactions,
of the store inside a broker, and of logins with a browser."""


def test_every_error_is_public_or_a_brokers_own():
    assert set(millpond.errors.__all__) | BROKERS_OWN == {kind.__name__ for kind in error_classes()}
    assert not set(millpond.errors.__all__) & BROKERS_OWN
    for name in millpond.errors.__all__:
        assert getattr(millpond.errors, name) is getattr(errors, name)


def test_the_errors_are_found_without_an_import_of_their_own():
    code = "import millpond, sys; millpond.errors.TimedOut; assert 'millpond.client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def drawn_parents():
    """Name to parent, from the tree in the module's docstring."""
    found, above = {}, {}
    for line in errors.__doc__.splitlines():
        stripped = line.lstrip(" │├└─")
        words = stripped.split("  ")[0].split() if len(line) - len(stripped) <= 8 else stripped.split()
        names = [word for word in words if word[:1].isupper() and hasattr(errors, word)]
        if not names or not line.startswith("    "):
            continue
        depth = (len(line) - len(stripped) - 4) // 4
        for name in names:
            found[name] = above.get(depth - 1)
        above[depth] = names[0]
    return found


def test_every_error_is_drawn_in_the_tree_below_its_family():
    drawn = drawn_parents()
    assert set(drawn) == {kind.__name__ for kind in error_classes()}
    for kind in error_classes():
        if kind is MillpondError:
            continue
        family = next(base for base in kind.__mro__[1:] if base.__name__ in drawn.values())
        assert drawn[kind.__name__] == family.__name__


@for_each("kind", error_classes())
def test_every_error_makes_a_sentence_even_without_its_facts(kind):
    message = str(kind())
    assert message[0].isupper() or message[0] == "<"
    assert message.endswith(".")
