"""Files with one secret: what is read, what is refused, and when a token is read again."""

import os
import threading

import pytest

from millpond.client.secret_files import SECRET_BYTES_MAX, TokenFile, check_private, read_secret
from millpond.model.errors import InvalidArgument, Unavailable


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b"word", "word"),
        (b"word\n", "word"),
        (b"word\r\n", "word"),
        (b" a b \n\n", " a b \n"),
        ("wörd".encode(), "wörd"),
    ],
)
def test_one_line_break_at_the_end_is_no_part_of_it(tmp_path, content, secret):
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert read_secret("x", file) == secret


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * (SECRET_BYTES_MAX + 1), None])
def test_a_file_without_a_secret_is_named_and_not_shown(tmp_path, content):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"^--x='.*secret': expected a file") as refused:
        read_secret("--x", file)
    assert "xxx" not in str(refused.value)


def test_a_token_is_read_again_when_its_file_has_changed(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    token = TokenFile("x", file)
    assert token() == "one"
    file.write_text("three\n")
    assert token() == "three"
    renewed = tmp_path / "renewed"
    renewed.write_text("other\n")
    renewed.replace(file)
    assert token() == "other"


def test_while_its_file_is_away_there_is_no_token(tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    token = TokenFile("x", file)
    file.unlink()
    with pytest.raises(Unavailable, match=r"x='.*token': expected a file that can be read"):
        token()
    file.write_text("two")
    assert token() == "two"


def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\n",))
    writer.start()
    token = TokenFile("x", pipe)
    writer.join()
    assert (token(), token()) == ("one", "one")
    check_private("x", pipe)


def test_a_token_in_a_file_is_checked_and_not_shown(tmp_path):
    file = tmp_path / "token"
    file.write_text("two words")
    with pytest.raises(InvalidArgument, match=r"^x=\(hidden\): expected a token") as refused:
        TokenFile("x", file)
    assert "two words" not in str(refused.value)
    file.write_text("word")
    assert "word" not in repr(TokenFile("x", file))


@pytest.mark.parametrize(
    ("mode", "is_refused"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)]
)
def test_a_file_that_others_can_open_is_refused(tmp_path, mode, is_refused):
    file = tmp_path / "secret"
    file.write_text("word")
    file.chmod(mode)
    if not is_refused:
        check_private("x", file)
        return
    with pytest.raises(InvalidArgument, match=r"other users can open .*secret.* chmod 600") as refused:
        check_private("x", file)
    assert "word" not in str(refused.value)
