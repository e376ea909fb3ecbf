"""Memory of a broker whose subscription consumers never read."""

from millpond.stubs import queue_pb2 as pb

OK = pb.ANSWER_OK
UNREAD_BYTES_MAX = 400 * 2**20


def test_those_that_never_read_take_bounded_memory_and_no_messages_from_others(queues, figures):
    """Each is granted everything, without a limit to the bytes. Every subscription has its own."""
    readers = 12
    for number in range(readers):
        queues.subscribe(f"unread-{number}")
    queues.produce(64, 2**20 - 1_000)
    before = queues.siege.rss_bytes()
    silent = [
        queues.consumer("silent", f"unread-{number}", credit=1_000, value_bytes_max=2**20)
        for number in range(readers)
    ]
    reader = queues.consumer(credit=1_000, value_bytes_max=2**20)
    assert reader.answer(acks=[each.ack_id for each in reader.deliveries(64)]) == [OK] * 64
    peak = queues.siege.peak_rss_bytes() - before
    figures.append(f"{len(silent)} consumers of 64 MiB that never read: {peak // 2**20} MiB")
    assert peak < UNREAD_BYTES_MAX
