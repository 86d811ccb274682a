"""Seeds that follow from what they are for, so that no random state has to be stored."""

import hashlib


def derive_seed(*parts: str | int) -> int:
    """A seed in ``[0, 2**63)`` that depends on every part and on nothing else.

    The randomness of a run is a pure function of (seed, purpose, network, step): a resumed run
    draws what an uninterrupted one would have drawn.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
