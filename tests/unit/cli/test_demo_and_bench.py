"""The demo and the bench from beginning to end, each with a broker of its own."""

import re
import shutil

from tests.unit.cli.conftest import Millpond

NOWHERE = Millpond("127.0.0.1:1")


def test_the_demo_shows_the_product_at_work(tmp_path):
    done = NOWHERE("demo", TMPDIR=str(tmp_path))
    text = done.out.decode()
    assert (done.code, done.err) == (0, ""), text + done.err
    for words in (
        "message 3: three",
        "100,000 messages, all durable",
        "read the same 100,000 messages",
        "produced and fetched greeting:hello",
        "nothing lost: 20,000 in flight and 100,000 earlier ones",
        "the next one got number 3",
        "paint: nack",
        "paint, retry 1: ack",
        "poison, retry 1: nack",
        "poison is a dead letter now",
        "3 tasks done, one of them by a retry; 1 dead letter",
        "100,000 rows to Delta" if shutil.which("java") else "skipped: there is no Java",
        "Where to go next",
    ):
        assert words in text, text
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text), "control characters without a terminal"
    assert list(tmp_path.iterdir()) == [], "it cleans up"


def test_a_demo_that_cannot_start_says_why(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'serve' in sys.argv: sys.exit('there is no broker today')\n"
    )
    done = NOWHERE("demo", PYTHONPATH=str(tmp_path))
    assert done.code == 1
    assert "A broker for this could not be started" in done.err
    assert "there is no broker today" in done.err


def test_the_bench_measures_a_broker_of_its_own(tmp_path):
    done = NOWHERE(
        *("bench", "--embedded", "--json", "--messages", "2001", "--size", "10B", "--producers", "2"),
        TMPDIR=str(tmp_path),
    )
    assert done.code == 0, done.err
    assert "starting a temporary broker" in done.err
    figures = done.json
    assert figures["messages"] == 2001
    assert figures["read"] > 2001, "the single ones are read, too"
    assert 0 < figures["acknowledged_p50_ms"] <= figures["acknowledged_p99_ms"]
    assert min(figures["produced_per_s"], figures["read_per_s"]) > 0
    assert list(tmp_path.iterdir()) == [], "it cleans up"


def test_the_bench_leaves_no_topic_behind(millpond):
    done = millpond("bench", "--messages", "100", "--compression", "zstd")
    assert done.code == 0, done.err
    assert "temporary" not in done.err
    assert done.lines[0].startswith("  messages      100 of 1000 B, compression zstd")
    assert millpond("topic", "list", "--json").json == []


def test_messages_that_are_refused_fail_the_bench(millpond):
    done = millpond("bench", "--messages", "3", "--size", "2MB")
    assert done.code == 1
    assert "larger than the limit" in done.err
    assert millpond("topic", "list", "--json").json == []


def test_a_bench_needs_the_broker_it_was_told(tmp_path):
    done = NOWHERE("bench")
    assert (done.code, "No broker responds at 127.0.0.1:1" in done.err) == (1, True)
