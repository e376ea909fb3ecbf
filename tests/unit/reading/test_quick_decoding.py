"""Which batches are decoded on the event loop."""

import pytest

from millpond.reading.quick_decoding import decodes_quickly
from millpond.records import Codec, Record, build_batch, read_header


def header(records, codec=Codec.NONE):
    return read_header(build_batch([Record(b"x")] * records, now_ms=0, compression=codec))


def is_quick(headers, size=100):
    return decodes_quickly(headers, size, bytes_max=100, records_max=5)


def test_few_bytes_and_records():
    assert is_quick([])
    assert is_quick([header(5)])
    assert is_quick([header(2), header(3)])


def test_many_bytes_whose_headers_are_not_read():
    def unread():
        pytest.fail("reading headers takes time, too")
        yield

    assert not is_quick(unread(), size=101)


def test_many_records():
    assert not is_quick([header(6)])
    assert not is_quick([header(3), header(3)])


def test_compressed_batches():
    assert not is_quick([header(1), header(1, Codec.GZIP)])
