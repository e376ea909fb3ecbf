"""URLs to stores."""

import sys
from pathlib import Path

import pytest

from millpond.model.errors import DataDirectoryUnusable, InvalidSettings, NotInstalled
from millpond.model.ids import Session
from millpond.objects.open import open_store
from millpond.observability.metrics import Metrics

SESSION = Session("s1")


def test_memory() -> None:
    metrics = Metrics()
    store = open_store("memory://", SESSION, metrics=metrics)
    assert not store.appends_are_uploads
    store.append([b"x"])
    assert b'millpond_store_operations_total{operation="append"} 1.0' in metrics.expose()


def test_file(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space", SESSION)
    location = store.append([b"x"])
    assert (tmp_path / "with space" / location.key).read_bytes() == b"x"
    assert not store.appends_are_uploads
    store.close()


def test_file_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirectoryUnusable):
        open_store(f"file://{tmp_path}/file", SESSION)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/prefix?endpoint=http://127.0.0.1:9&region=eu-west-1",
        "gs://bucket/prefix?skip_signature=true",
        "az://container/prefix?account_name=a&skip_signature=true",
    ],
)
def test_remote_is_opened_without_asking_it(url: str) -> None:
    assert open_store(url, SESSION).appends_are_uploads


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://host/", "starts with none"),
        ("relative/path", "starts with none"),
        ("file://host/dir", "file:///absolute"),
        ("file:dir", "file:///absolute"),
        ("s3:///nobucket", "no bucket"),
        ("s3://bucket?secret_access_key=hunter2", "secret_access_key cannot"),
        ("s3://[bucket", "IPv6"),
        ("s3://bucket?skip_signature=perhaps", "perhaps"),
    ],
)
def test_what_is_no_store(url: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as caught:
        open_store(url, SESSION)
    assert caught.value.facts["name"] == "storage"


@pytest.mark.parametrize(
    "url", ["s3://bucket?secret_access_key=hunter2", "ftp://me:hunter2@host/", "s3://bucket?hunter2=1&x"]
)
def test_secrets_in_a_url_are_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_store(url, SESSION)
    assert "hunter2" not in str(caught.value.facts["value"])


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "millpond.objects.remote", raising=False)
    with pytest.raises(NotInstalled, match=r"obstore \(not installed\): pip install 'millpond\[s3\]'"):
        open_store("s3://bucket", SESSION)
