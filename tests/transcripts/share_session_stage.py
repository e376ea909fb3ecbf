"""The stage on which stories of share sessions are played. Connections and members have names.

sessions [max=] [partitions=] [all=]
fetch MEMBER EPOCH [on=CONNECTION] [add=0,1] [forget=0] [acks]
acknowledge MEMBER EPOCH        close MEMBER        lose CONNECTION
"""

from millpond.frontends.kafka.errors import KafkaError
from millpond.frontends.kafka.share_sessions import FINAL_EPOCH, ShareSessions
from millpond.model.ids import TopicId, TopicPartition
from millpond.queues import MemberName

TOPIC = TopicId(b"\1" * 16)


class Connection:
    """Something that can be lost."""


class ShareSessionStage:
    def __init__(self):
        self.sessions = ShareSessions()
        self.connections = {}

    def perform(self, command):
        verb, *words = command.split()
        flags = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            return getattr(self, f"do_{verb}")(flags, options)
        except KafkaError as error:
            return [f"{error.code.name}: {error}"]

    def do_sessions(self, _, options):
        self.sessions = ShareSessions(
            int(options.get("max", 2_000)),
            int(options.get("partitions", 10_000)),
            int(options.get("all", 500_000)),
        )
        return ["none"]

    def do_fetch(self, flags, options):
        found = self.sessions.fetch(
            MemberName("workers", flags[0]),
            int(flags[1]),
            _partitions(options.get("add")),
            _partitions(options.get("forget")),
            self._connection(options.get("on", flags[0])),
            acknowledges="acks" in flags,
        )
        fetched = " ".join(str(each.partition) for each in found) or "nothing"
        return [f"fetches {fetched}"]

    def do_acknowledge(self, flags, _):
        self.sessions.acknowledge(MemberName("workers", flags[0]), int(flags[1]))
        return ["closes" if int(flags[1]) == FINAL_EPOCH else "ok"]

    def do_close(self, flags, _):
        self.sessions.close(MemberName("workers", flags[0]))
        return [f"{len(self.sessions)} sessions"]

    def do_lose(self, flags, _):
        lost = self.sessions.close_all_of(self._connection(flags[0]))
        return [f"releases {' '.join(name.member_id for name in lost) or 'no member'}"]

    def _connection(self, name):
        return self.connections.setdefault(name, Connection())


def _partitions(text):
    return [TopicPartition(TOPIC, int(each)) for each in text.split(",")] if text else []
