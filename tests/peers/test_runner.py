"""The runner of peers itself, without any peer: these are part of `make test`."""

import json
import subprocess
import sys

import pytest
from peers.__main__ import main
from peers.clients import Outcome
from peers.inventory import PEERS

from peers import Unavailable, clients, home, kafka, registries, server


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing here touches the peers that are installed."""
    monkeypatch.setenv("MILLPOND_PEERS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_is_installed_is_built_once(elsewhere):
    built = []
    for _ in range(2):
        folder = home.installed("thing-1", lambda part: built.append((part / "file").write_text("x")))
    assert folder == elsewhere / "thing-1"
    assert (folder / "file").read_text() == "x"
    assert len(built) == 1


def test_a_build_that_fails_leaves_nothing_behind(elsewhere):
    def build(part):
        (part / "half").write_text("x")
        raise Unavailable("The registry does not answer.")

    with pytest.raises(Unavailable, match="does not answer"):
        home.installed("thing-1", build)
    assert list(elsewhere.iterdir()) == []


def test_a_missing_program_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"^Apache Kafka 4\.\S+ needs `java`, which is not on the PATH\.$"):
        kafka.jars()


def test_a_failed_installer_gives_its_telling_line():
    script = "import sys; sys.exit('warming up\\n[ERROR] no such artifact\\nsee the manual')"
    with pytest.raises(Unavailable, match=r"^Thing: \[ERROR\] no such artifact\.$"):
        home.run("Thing", [sys.executable, "-c", script])


def test_packages_are_read_from_a_list_of_dependencies():
    listing = "kcat\n  Depends: libc6\n  Depends: <virtual>\nlibc6\nlibyajl2\n |Depends: x\n"
    assert registries.debian_closure(listing) == {"kcat", "libc6", "libyajl2"}


def sleeper(folder, seconds="60"):
    """A server that listens, and nothing more."""
    port = server.free_port()
    script = (
        "import socket, sys, time; listener = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
        "time.sleep(float(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, str(port), seconds, str(folder)]
    return server.Plan("sleeper", folder, port, command)


def is_running(pid):
    return (
        subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True, check=False).returncode
        == 0
    )


def test_a_server_runs_for_the_length_of_its_block(tmp_path):
    with server.running(sleeper(tmp_path)) as started:
        assert is_running(started.pid)
        assert started.address.startswith("127.0.0.1:")
    assert not is_running(started.pid)


def test_a_server_that_ends_at_once_says_why(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('no room')"]
    with pytest.raises(Unavailable, match=r"ended with 1: no room"):
        server.launch(server.Plan("brief", tmp_path, server.free_port(), command))


def test_stop_leaves_a_process_alone_that_only_has_the_same_id(tmp_path):
    _, process = server.launch(sleeper(tmp_path / "other"))
    try:
        mine = tmp_path / "mine"
        mine.mkdir()
        (mine / server.STATE).write_text(json.dumps({"pid": process.pid}))
        server.stop(mine)
        assert process.poll() is None
        assert not (mine / server.STATE).exists()
    finally:
        process.kill()
        process.wait()


def test_results_of_several_runs_are_kept_together():
    clients.save_results(
        "millpond", [Outcome("a", "1", "reads", "failed"), Outcome("b", "1", "reads", "passed")]
    )
    clients.save_results("kafka", [Outcome("a", "1", "reads", "passed")])
    clients.save_results("millpond", [Outcome("a", "1", "reads", "passed")])
    assert clients.read_results("millpond") == [
        Outcome("a", "1", "reads", "passed"),
        Outcome("b", "1", "reads", "passed"),
    ]


def test_the_page_shows_what_was_seen():
    page = clients.page(
        [
            Outcome("kcat", "1.7", "reads", "passed"),
            Outcome("kcat", "1.7", "writes", "skipped", "no kcat"),
            Outcome("aio", "2", "reads", "failed"),
            Outcome("connect", "4", "copies", "passed", counts="7 lines", date="2026-01-02"),
        ]
    )
    rows = [line for line in page.splitlines() if line.startswith(("## ", "| "))]
    assert rows == [
        "## aio 2",
        "| capability | works |",
        "| reads | no |",
        "## connect 4",
        "| capability | works | counts | date |",
        "| copies | yes | 7 lines | 2026-01-02 |",
        "## kcat 1.7",
        "| capability | works |",
        "| reads | yes |",
        "| writes | not tried: no kcat |",
    ]


def test_the_list_names_every_peer(capsys):
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    for name in PEERS:
        assert f"\n{name} " in told


def test_an_unknown_peer_is_refused_with_the_names_of_those_there_are(capsys):
    assert main(["install", "nobody"]) == 1
    assert "There is no peer nobody; there are kafka," in capsys.readouterr().err


def test_what_cannot_be_installed_does_not_stop_the_others(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert main(["install", "kafka", "franz-go"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told] == ["kafka", "franz-go"]
    assert all("not installed." in line for line in told)
