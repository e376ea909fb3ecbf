"""`millpond produce`: sends messages from lines, files or JSON to a topic.

Messages are pipelined: many are in flight while more are read, bounded in number and bytes, and their results
are handled in order. An invalid message is reported and the rest continues. If the broker is unreachable or
refuses the topic, reading stops.
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import IO, Final, Literal, NamedTuple

import click

from millpond.cli.connection import check_reachable, client_options, complete_topic
from millpond.cli.input_files import STDIN, InputChunk, InputFile, InputLine, texts
from millpond.cli.interruption import Interruption
from millpond.cli.main import EXIT_FAILED, EXIT_INTERRUPTED, sentence_of
from millpond.cli.messages import ParsedMessage, from_line
from millpond.cli.options import broker_options, json_option, name_and_value
from millpond.cli.output import Stopwatch, count_text, print_note, stderr_is_terminal
from millpond.client import Placed, Producer, Sent
from millpond.model.errors import AuthenticationFailed, InvalidInput, InvalidTopicName, MillpondError
from millpond.model.ids import check_topic_name
from millpond.records import Header

IN_FLIGHT_MAX: Final = 20_000
IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
REFUSALS_SHOWN_MAX: Final = 10

DecodeLine = Callable[[bytes], ParsedMessage]

EPILOG: Final = """\b
Examples:
  echo hello | millpond produce greetings
  millpond produce orders --message 'k1:one' --message 'k2:two' --key-separator :
  millpond produce events --file events.txt --compression zstd
  millpond produce pictures --input raw --file cat.png --key cat
  millpond consume orders --json | millpond produce copy --input json

\b
As JSON a message is written as `consume --json` prints it:
  {"value": "text", "key": {"base64": "/w=="}, "headers": [{"name": "n", "value": "v"}]}
Only the value must be there. Its partition, offset and number are ignored: it gets new ones.
"""


@click.command(epilog=EPILOG)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    type=click.Path(allow_dash=True),
    help="Read messages from this file instead of standard input; repeatable.",
)
@click.option("--message", "messages", multiple=True, metavar="TEXT", help="Message to send; repeatable.")
@click.option(
    "--input",
    "form",
    type=click.Choice(["lines", "raw", "json"]),
    default="lines",
    show_default=True,
    help="Format of the input: one message per line, a whole file as one message, or one JSON message per line.",
)
@click.option("--key", help="Key of all messages.")
@click.option(
    "--key-separator", metavar="TEXT", help="Text that separates the key from the value in each line."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", callback=name_and_value,
              help="Header of all messages; repeatable.")  # fmt: skip
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Send all messages to this partition, whatever their keys.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print neither summary nor progress.")
@broker_options
@json_option
@click.pass_context
def produce(
    context: click.Context,
    topic: str,
    files: tuple[str, ...],
    messages: tuple[str, ...],
    form: Literal["lines", "raw", "json"],
    key: str | None,
    key_separator: str | None,
    headers: list[tuple[str, str]],
    partition: int | None,
    compression: str,
    quiet: bool,
    address: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Send messages: one per line, one per file, or JSON. A message that is reported as stored is durable."""
    if files and messages:
        raise click.UsageError("give --file or --message, not both")
    decode = _decoder(form, key, key_separator, headers)
    check_topic_name(topic)
    check_reachable(address)
    with Interruption() as interruption, ExitStack() as opened:
        sources = [] if messages else [InputFile(path) for path in files or (STDIN,)]
        for source in sources:
            opened.callback(source.close)
        producer = Producer(
            topic, address=address, timeout=timeout, compression=compression, **client_options()
        )
        opened.enter_context(producer)
        delivery = InFlightMessages(producer, decode, partition, sys.stdout.buffer if as_json else None)
        pieces = texts(messages) if messages else _pieces(sources, form, interruption)
        watch = Stopwatch()
        _deliver(delivery, pieces, sources, interruption, quiet)
    if not quiet:
        print_note(delivery.summary(watch, interruption.requested))
    if interruption.requested:
        context.exit(EXIT_INTERRUPTED)
    if delivery.refused:
        context.exit(EXIT_FAILED)


def _deliver(
    delivery: "InFlightMessages",
    pieces: Iterator[InputChunk],
    sources: list[InputFile],
    interruption: Interruption,
    quiet: bool,
) -> None:
    size = sum(source.size_bytes for source in sources)
    talks = any(source.is_terminal for source in sources)
    hidden = quiet or not size or not stderr_is_terminal()
    try:
        with click.progressbar(length=size, label="sending", file=sys.stderr, hidden=hidden) as bar:
            for piece in pieces:
                if not delivery.send(piece, interruption):
                    break
                if talks:
                    delivery.settle_all()  # a user at a terminal should see the result immediately
                bar.update(piece.bytes_read)
    except KeyboardInterrupt:
        pass  # while waiting for input; what was read before is finished below
    delivery.settle_all()


def _pieces(sources: list[InputFile], form: str, interruption: Interruption) -> Iterator[InputChunk]:
    for source in sources:
        yield from source.whole(interruption) if form == "raw" else source.lines(interruption)


def _decoder(form: str, key: str | None, separator: str | None, headers: list[tuple[str, str]]) -> DecodeLine:
    if form == "json":
        if key is not None or separator or headers:
            raise click.UsageError("a JSON message has its own key and headers: leave out --key and --header")
        return from_line
    if key is not None and separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if separator == "":
        raise click.UsageError("--key-separator needs a text")
    fixed = _encoded(key)
    pairs: tuple[Header, ...] = tuple((name, _encoded(value)) for name, value in headers)
    parting = _encoded(separator)
    if parting is None:
        return lambda content: ParsedMessage(content, fixed, pairs)

    def parted(content: bytes) -> ParsedMessage:
        before, found, after = content.partition(parting)
        return ParsedMessage(after, before, pairs) if found else ParsedMessage(content, None, pairs)

    return parted


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


class InFlightMessage(NamedTuple):
    location: str
    size: int
    sent: Sent


class InFlightMessages:
    """Messages in flight, and the results of the others."""

    def __init__(
        self, producer: Producer, decode: DecodeLine, partition: int | None, report: IO[bytes] | None
    ) -> None:
        self.stored = 0
        self.refused = 0
        self._producer = producer
        self._decode = decode
        self._partition = partition
        self._report = report
        self._waiting: deque[InFlightMessage] = deque()
        self._waiting_bytes = 0
        self._can_continue = True
        self._is_unauthenticated = False

    def send(self, piece: InputChunk, interruption: Interruption) -> bool:
        """Send the messages. Returns whether to continue. It waits for the result of the first message, so
        that a topic that the broker refuses is reported before more input is read."""
        for line in piece.lines:
            if interruption.requested or not self._can_continue:
                return False
            self._submit(line)
            while self._waiting and (self._is_first() or self._is_full() or self._waiting[0].sent.done()):
                self._settle_first()
        return self._can_continue

    def _is_first(self) -> bool:
        return not self.stored and not self.refused

    def settle_all(self) -> None:
        while self._waiting:
            self._settle_first()
        if self._report is not None:
            self._report.flush()

    def summary(self, watch: Stopwatch, interrupted: bool) -> str:
        text = f"stored {count_text(self.stored)} in {watch.seconds:.2f} s ({watch.rate(self.stored)})"
        if self.refused:
            text += f", refused {count_text(self.refused)}"
        if not self._can_continue:
            text += "; the rest was not sent"
        return f"interrupted: {text}" if interrupted else text

    def _is_full(self) -> bool:
        return len(self._waiting) >= IN_FLIGHT_MAX or (
            self._waiting_bytes >= IN_FLIGHT_BYTES_MAX and len(self._waiting) > 1
        )

    def _submit(self, line: InputLine) -> None:
        try:
            message = self._decode(line.content)
            sent = self._producer.submit(
                message.value,
                key=message.key,
                headers=message.headers,
                partition=self._partition,
                timestamp_ms=message.timestamp_ms,
            )
        except MillpondError as error:
            sent = Sent()
            sent.set_exception(error)
        self._waiting.append(InFlightMessage(line.location, len(line.content), sent))
        self._waiting_bytes += len(line.content)

    def _settle_first(self) -> None:
        location, size, sent = self._waiting.popleft()
        self._waiting_bytes -= size
        try:
            self._note_stored(location, sent.result())
        except MillpondError as error:
            self._note_refused(location, error)

    def _note_stored(self, location: str, placed: Placed) -> None:
        self.stored += 1
        if self._report is not None:
            stored = {"partition": placed.partition, "offset": placed.number - 1, "number": placed.number}
            self._print({"source": location, **stored})

    def _note_refused(self, location: str, error: MillpondError) -> None:
        self.refused += 1
        if not isinstance(error, InvalidInput) or isinstance(error, InvalidTopicName):
            self._can_continue = False
        if self._report is not None:
            self._print({"source": location, "error": type(error).__name__, "message": str(error)})
        if isinstance(error, AuthenticationFailed):
            self._note_not_authenticated(error)
        elif self.refused <= REFUSALS_SHOWN_MAX:
            print_note(f"millpond: {location} was refused: {sentence_of(error)}")
        elif self.refused == REFUSALS_SHOWN_MAX + 1:
            print_note("millpond: more were refused; only the first are shown")

    def _note_not_authenticated(self, error: AuthenticationFailed) -> None:
        """Once, because it is not about one of the messages."""
        if not self._is_unauthenticated:
            print_note(f"millpond: {sentence_of(error)}")
        self._is_unauthenticated = True

    def _print(self, facts: dict[str, object]) -> None:
        assert self._report is not None, "a report is written"
        self._report.write(json.dumps(facts).encode() + b"\n")
