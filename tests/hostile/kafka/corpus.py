"""Requests as real clients wrote them: one of each key and version. `record.py` renews the file."""

import base64
import json
import struct
import zlib
from pathlib import Path

FILE = Path(__file__).with_name("corpus.json")
KEY_AND_VERSION = struct.Struct(">hh")


def load():
    """{(api key, version): frame without its length}"""
    frames = [zlib.decompress(base64.b64decode(text)) for text in json.loads(FILE.read_text())]
    return {KEY_AND_VERSION.unpack_from(frame): frame for frame in frames}


def save(frames):
    packed = [base64.b64encode(zlib.compress(frame, 9)).decode() for _, frame in sorted(frames.items())]
    FILE.write_text(json.dumps(packed, indent=0) + "\n")
