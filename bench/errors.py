"""Mistakes a person can make, said in one line."""

import difflib
from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

SHOWN = 200
"""Characters of a wrong value that a line shows."""


class UserError(Exception):
    """A mistake in a suite, a flag or a data folder.

    Its message is one line that names the place, what is wrong and what would be right. The command
    line prints it and exits with code 2; nothing has been written then.
    """


class NotApplicable(Exception):
    """A method cannot treat a backbone; the message is the reason that tables show."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that nothing answers to, with the nearest ones.

    Args:
        kind: what the name stands for, such as ``"method"``.
        name: the name that was given.
        known: the names that would be right.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}known: {', '.join(names) or 'none'}")


def complaint(error: ValidationError) -> ErrorDetails:
    """What to tell of a Pydantic error; a mistyped name explains a missing one and goes first."""
    found = error.errors()
    return next((one for one in found if one["type"] == "extra_forbidden"), found[0])


def _shown(value: object) -> str:
    """A value as a line can hold it."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def validation_line(place: str, error: ValidationError, fields: Iterable[str] = ()) -> UserError:
    """The first complaint of a Pydantic error in one line.

    Args:
        place: where the value stands, such as a file name.
        error: what Pydantic found.
        fields: the valid field names at the level of the complaint, for the hint at a typo.
    """
    first = complaint(error)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])
        near = difflib.get_close_matches(name, list(fields), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(fields))}"
        return UserError(f"{place}: unknown key {where!r}: {hint}")
    if first["type"] == "value_error":
        # A check of ours, whose message says what was given.
        line = ": ".join(part for part in (place, where, str(first["ctx"]["error"])) if part)
        return UserError(line.replace("\n", " "))
    value = "" if first["type"] == "missing" else f" (got {_shown(first['input'])})"
    return UserError(f"{place}: {where or 'value'}: {first['msg']}{value}".replace("\n", " "))
