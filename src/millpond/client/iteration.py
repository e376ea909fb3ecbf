"""The messages that an iteration over a consumer returns one by one, possibly in another thread than the consumer's."""

from collections import deque
from collections.abc import Callable, Iterable

from millpond.client.message import Message


class LentMessages:
    """Messages of one poll. The iteration takes them; the consumer takes back those that are left when it polls, seeks
    or closes. Each message goes to one of the two, since both remove it from the deque. The loan ends early,
    but not before its first message, when `goes_on` returns False."""

    def __init__(self, messages: Iterable[Message] = (), goes_on: Callable[[], bool] = lambda: True) -> None:
        self._left = deque(messages)
        self._goes_on = goes_on
        self.last: Message | None = None
        """The message that was taken last. It is not processed yet."""

    def take(self) -> Message | None:
        """The next message; None if none is left, or the consumer is to be asked for the next ones."""
        if not self._goes_on() and self.last is not None:
            return None
        try:
            message = self._left.popleft()
        except IndexError:
            return None
        self.last = message
        return message

    def take_back(self) -> list[Message]:
        """All messages that are left, in order."""
        messages: list[Message] = []
        while self._left:
            try:
                messages.append(self._left.popleft())
            except IndexError:  # the iteration was faster
                break
        return messages

    def positions(self, topic: str) -> dict[int, int]:
        """By partition: the number of the first message that is left."""
        found: dict[int, int] = {}
        for message in self._left.copy():
            if message.topic == topic:
                found.setdefault(message.partition, message.number)
        return found
