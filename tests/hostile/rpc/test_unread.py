"""Clients that begin something and do not see to its end: streams nobody reads, calls that are cancelled, uploads
that stop halfway. The broker's memory stays bounded, and the others are served."""

import threading

from millpond.stubs import log_pb2

MIB = 1024 * 1024


def produce(topic, value):
    return log_pb2.ProduceRequest(topic=topic, messages=[log_pb2.NewMessage(value=value)]).SerializeToString()


def test_calls_that_are_cancelled_at_any_moment_leave_nothing(attacked_broker):
    with attacked_broker("cancelled calls") as siege:
        client = siege.attacker()
        client.ask("Log.Produce", produce("topic", b"x"))
        waiting = log_pb2.PollRequest(topic="topic", wait_ms=60_000)
        waiting.positions.add(read_from=1_000_000)
        follow = log_pb2.ConsumeRequest(topic="topic").SerializeToString()
        for _ in range(100):
            calls = [
                client.call("unary_unary", "Log.Produce").future(produce("topic", bytes(300_000))),
                client.call("unary_unary", "Log.Produce").future(produce("topic", b"x")),
                client.call("unary_unary", "Log.Poll").future(waiting.SerializeToString()),
                client.call("unary_stream", "Log.Consume")(follow),
                client.call("stream_stream", "Log.ProduceStream")(iter([produce("topic", b"x")] * 50)),
            ]
            for call in calls:
                call.cancel()
        siege.good.prove()


def test_calls_that_run_out_of_time_leave_nothing(attacked_broker):
    with attacked_broker("deadlines") as siege:
        client = siege.attacker()
        client.ask("Log.Produce", produce("topic", b"x"))
        for seconds in (0.0001, 0.001, 0.003, 0.01):
            for _ in range(20):
                client.ask("Log.Produce", produce("topic", bytes(200_000)), seconds=seconds)
                client.ask("Log.ProduceStream", produce("topic", b"x"), seconds=seconds)
        siege.good.prove()


def test_streams_that_stay_half_open_harm_nobody(attacked_broker):
    """They write something and then neither more nor the end."""
    with attacked_broker("half-open streams") as siege:
        silence = threading.Event()

        def half(topic):
            yield produce(topic, b"x")
            silence.wait()

        calls = []
        for number in range(100):
            call = siege.attacker().call("stream_stream", "Log.ProduceStream")(half(f"topic-{number % 3}"))
            assert next(call)
            calls.append(call)
        siege.good.prove()
        silence.set()
        for call in calls:
            call.cancel()
