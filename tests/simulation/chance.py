"""All chance from one seed: what the product takes from the operating system it is given from here."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock


@contextmanager
def seeded(random_: Random) -> Iterator[None]:
    """Ids, tokens, secrets and jitter (`os.urandom`, `uuid`, `secrets`, `random`) repeat with the seed."""
    state = random.getstate()
    random.seed(random_.randrange(1 << 62))
    with (
        mock.patch.object(os, "urandom", random_.randbytes),
        mock.patch("random._urandom", random_.randbytes),
    ):
        try:
            yield
        finally:
            random.setstate(state)
