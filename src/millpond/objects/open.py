"""Opens the store that a URL names, with its wrappers. Only this module assembles them."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from millpond.model.errors import InvalidSettings, NotInstalled
from millpond.model.ids import Session
from millpond.model.urls import redacted_url
from millpond.objects.disk_reserve import Reserve
from millpond.objects.file_store import FileStore
from millpond.objects.instrumented import Instrumented
from millpond.objects.memory import MemoryStore
from millpond.objects.retrying import Retrying, RetryPolicy
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import Metrics

REMOTE_SCHEMES = ("s3", "gs", "az")
URL_OPTIONS = frozenset(
    {"endpoint", "region", "virtual_hosted_style_request", "skip_signature", "account_name"}
)
"""The options that a URL's query may set. Secrets are not among them: URLs end up in logs and process lists."""


def open_store(
    url: str,
    session: Session,
    *,
    metrics: Metrics | None = None,
    retry: RetryPolicy | None = None,
    config: Mapping[str, str] | None = None,
    reserve: Reserve | None = None,
) -> ObjectStore:
    """A store ready to use, counted in `metrics`. Remote stores also retry.

    * `memory://`
    * `file:///absolute/directory`
    * `s3://bucket/prefix?endpoint=…&region=…`, `gs://bucket/prefix`, `az://container/prefix`

    `config` holds further settings for a remote store under obstore's names (credentials, for example, which by
    default come from the provider's usual environment variables). `reserve` is the reserve of a file store's disk.

    Raises `InvalidSettings` for any other URL, `NotInstalled` if the package for a remote store is missing,
    and `DataDirectoryUnusable` if the directory is not writable.
    """
    metrics = metrics or Metrics()
    split = _split(url)
    if split.scheme in REMOTE_SCHEMES:
        remote = _open_remote(url, split, session, config or {})
        store: ObjectStore = Retrying(
            remote, retry, on_retry=lambda operation: metrics.store.retries.labels(operation).inc()
        )
    elif split.scheme == "file":
        store = FileStore(_directory(url, split), session, reserve=reserve)
    elif split.scheme == "memory":
        store = MemoryStore(session)
    else:
        raise _invalid(url, "it starts with none of memory:// file:// s3:// gs:// az://")
    return Instrumented(store, metrics.store)


def folder_of(url: str) -> Path | None:
    """The directory of a file store; None for any other store."""
    split = _split(url)
    return _directory(url, split) if split.scheme == "file" else None


def _open_remote(url: str, split: SplitResult, session: Session, config: Mapping[str, str]) -> ObjectStore:
    try:
        from millpond.objects.remote import RemoteStore
    except ImportError as error:
        raise NotInstalled(
            purpose="A store on S3, GCS or Azure",
            what="the Python package obstore",
            advice="pip install 'millpond[s3]'",
        ) from error
    if not split.netloc:
        raise _invalid(url, "it names no bucket")
    options = dict(parse_qsl(split.query))
    if unknown := options.keys() - URL_OPTIONS:
        raise _invalid(url, f"{', '.join(sorted(unknown))} cannot be set in a URL")
    bare = split._replace(query="").geturl()
    try:
        return RemoteStore(bare, session, config={**options, **config})
    except Exception as error:
        raise _invalid(url, str(error).partition("\n")[0]) from error


def _directory(url: str, split: SplitResult) -> Path:
    if split.netloc or split.query or not split.path.startswith("/"):
        raise _invalid(url, "a directory is written file:///absolute/path")
    return Path(unquote(split.path))


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _invalid(url, str(error)) from error


def _invalid(url: str, reason: str) -> InvalidSettings:
    return InvalidSettings(name="storage", value=redacted_url(url), reason=reason)
