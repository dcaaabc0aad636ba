"""The one exception raised on purpose, and the sentence it speaks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["InputError", "Shown", "nearest", "shown"]

_LONGEST = 80


class InputError(ValueError):
    """A bad input: names the field, the rule, the value, and what to write instead.

    Parameters
    ----------
    place : str
        What was wrong: ``"Fleet.count"``, or a place in a file.
    rule : str
        What it must be, so that "<place> must be <rule>" reads as a sentence.
    value : object
        What was given; shown shortened.
    fix : str
        One sentence that mends it.

    Attributes
    ----------
    faults : tuple of InputError
        Every fault found; the error itself where there is one only.

    Examples
    --------
    >>> raise InputError("Fleet.count", "a whole number of at least 1", -4, "Write count=256.")
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: Fleet.count must be a whole number of at least 1; got -4. Write count=256.
    """

    def __init__(self, place: str, rule: str, value: object, fix: str) -> None:
        # a key or file name may hold a line break or a terminal's control codes
        place = place if place.isprintable() else repr(place)[1:-1]
        self.place = place
        self.rule = rule
        self.value = value if isinstance(value, Shown) else Shown(shown(value))
        self.fix = fix
        self.faults: tuple[InputError, ...] = (self,)
        super().__init__(f"{place} must be {rule}; got {self.value}. {fix}")

    @classmethod
    def together(cls, faults: Iterable[InputError]) -> InputError:
        """One error that carries several faults; a single fault stays itself."""
        found = tuple(single for fault in faults for single in fault.faults)
        if len(found) == 1:
            return found[0]
        error = cls.__new__(cls)
        error.place, error.rule, error.value, error.fix = "input", "free of faults", Shown(""), ""
        error.faults = found
        lines = "".join(f"\n  {fault}" for fault in found)
        ValueError.__init__(error, f"{len(found)} faults:{lines}")
        return error

    def at(self, place: str) -> InputError:
        """The same fault at another place: inside a file, say.

        Examples
        --------
        >>> print(InputError("Fleet.count", "at least 1", 0, "Write 256.").at("plan.toml: fleet.count"))
        plan.toml: fleet.count must be at least 1; got 0. Write 256.
        """
        return type(self)(place, self.rule, self.value, self.fix)

    def __reduce__(self) -> tuple[object, ...]:
        if len(self.faults) == 1:
            return type(self), (self.place, self.rule, self.value, self.fix)
        return type(self).together, (self.faults,)


class Shown(str):
    """Text that is already as a reader should see it."""

    __slots__ = ()


def shown(value: object) -> str:
    """A value as an error shows it: on one line, and never longer than a line.

    Examples
    --------
    >>> shown("80,5 GB/s")
    "'80,5 GB/s'"
    >>> len(shown("9" * 1000))
    80
    """
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"
    if hasattr(value, "units") and hasattr(value, "magnitude"):
        value = Shown(f"{value}")
    try:
        text = str(value) if isinstance(value, Shown) else repr(value)
    except Exception:  # somebody else's repr must not hide the fault
        text = f"an unprintable {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def nearest(name: object, names: Iterable[str], *, most: int = 1) -> str:
    """A sentence that names the nearest of the known names, or lists a few of them.

    Examples
    --------
    >>> nearest("save_intervall", ["save_interval", "fleet"])
    'Did you mean save_interval?'
    >>> nearest("xyz", ["save_interval", "fleet"])
    'Known: fleet, save_interval.'
    """
    from difflib import get_close_matches

    known = sorted(names)
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower()[:200], by_lower, n=most, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(by_lower[each] for each in close)}?"
    listed = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f"Known: {listed}." if known else "None is known."
