"""Changes the codec of batches. Payload, codec bits, length and CRC change; offsets, times and producers do not."""

from millpond.model.buffers import Buffer
from millpond.records.batch import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, seal, walk
from millpond.records.compression import Codec, compress, decompress


def recompress(batches: Buffer, codec: Codec, *, decompressed_bytes_max: int) -> bytearray:
    """A copy of the batches with this codec; batches that already have it stay as they are. Raises
    `RecordTooLarge` if all decompressed payloads together exceed the limit."""
    view = memoryview(batches)
    out = bytearray()
    room = decompressed_bytes_max
    for position, header in walk(view):
        batch = view[position : position + header.size]
        if header.codec is codec:
            out += batch
            continue
        payload = decompress(header.codec, batch[HEADER_SIZE:], room)
        room -= len(payload)
        _add(out, header, codec, compress(codec, payload))
    return out


def _add(out: bytearray, header: BatchHeader, codec: Codec, payload: bytes) -> None:
    start = len(out)
    changed = header._replace(
        batch_length=HEADER_SIZE + len(payload) - LENGTH_END,
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    out += HEADER.pack(*changed)
    out += payload
    seal(out, start, len(out))
