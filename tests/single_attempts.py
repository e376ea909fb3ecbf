"""Calls of our client library that are tried once, so that the first error ends them and not a timeout."""

import contextlib
import math
from unittest import mock

from millpond.client.calls import Pauses


def without_retries() -> contextlib.AbstractContextManager[object]:
    """The pause before a second attempt would be longer than any timeout."""
    return mock.patch.object(Pauses, "take", return_value=math.inf)
