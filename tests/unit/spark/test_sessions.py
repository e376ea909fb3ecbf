"""What a session needs and where it keeps its archive of classes. No JVM is started here."""

import os
import subprocess
import sys
import time

import pytest

from millpond.model.errors import NotInstalled
from millpond.spark import sessions


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "millpond"


def ended_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def left_behind(cache, process, age_s):
    [option] = sessions._class_archive()
    archive = option.partition("=")[2].rpartition(".")[0]
    left = cache / f"{os.path.basename(archive)}.{process}"
    left.write_bytes(b"classes")
    os.utime(left, (time.time() - age_s,) * 2)
    return cache / os.path.basename(archive), left


def test_without_java_it_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NotInstalled, match="needs Java 17 or 21"):
        sessions.session()


def test_java_home_wins_over_the_path(tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert sessions.java_command() == str(java)


def test_the_first_session_leaves_an_archive_under_a_name_of_its_own(cache):
    [option] = sessions._class_archive()
    assert option.startswith(f"-XX:ArchiveClassesAtExit={cache}/spark-")
    assert option.endswith(f".jsa.{os.getpid()}")


def test_the_next_one_uses_it(cache):
    archive, left = left_behind(cache, ended_process(), age_s=60)
    assert sessions._class_archive() == [f"-XX:SharedArchiveFile={archive}"]
    assert not left.exists()


@pytest.mark.parametrize("who", ["still running", "ended just now"])
def test_one_that_may_still_be_written_is_left_alone(cache, who):
    process, age_s = (os.getppid(), 60) if who == "still running" else (ended_process(), 0)
    _, left = left_behind(cache, process, age_s)
    [option] = sessions._class_archive()
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    assert left.exists()


def test_without_a_place_for_it_spark_starts_as_usual(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert sessions._class_archive() == []


def test_another_spark_or_java_has_another_archive(monkeypatch):
    ours = sessions._installation()
    monkeypatch.setattr(sessions, "java_command", lambda: "/elsewhere/java")
    assert sessions._installation() != ours


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[4]", True), ("local-cluster[2,1,512]", True), ("spark://h:7077", False)],
)
def test_which_masters_are_this_machine(master, local):
    assert sessions.is_local(master) is local


def test_standard_error_goes_to_the_file_and_comes_back(tmp_path, capfd):
    log = tmp_path / "jvm.log"
    with sessions._standard_error_to(log):
        os.write(2, b"from the JVM\n")
    os.write(2, b"from us\n")
    assert log.read_text() == "from the JVM\n"
    assert capfd.readouterr().err == "from us\n"
