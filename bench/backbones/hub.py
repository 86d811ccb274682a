"""Asking a hub for weights, with a quick answer where there is no network."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

SECONDS = 5.0
"""How long an address may take to answer."""


@lru_cache(maxsize=8)
def reachable(address: str) -> bool:
    """Whether a web address answers at all, even with a refusal; asked once a process.

    The environment's proxies are used.
    """
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def quick_hub() -> Iterator[bool]:
    """Let Hugging Face's client answer from its cache alone while the hub can't be reached.

    Left to itself it tries again for a minute before it looks into its cache.

    Yields:
        whether the hub can be reached.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    online = not before and reachable(constants.ENDPOINT)
    constants.HF_HUB_OFFLINE = not online
    try:
        yield online
    finally:
        constants.HF_HUB_OFFLINE = before
