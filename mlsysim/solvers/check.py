"""A check: what a plan must satisfy, by how much it does, and what would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs
import numpy as np
from attrs import frozen

from mlsysim.report.wording import readable
from mlsysim.solvers.result import Record
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from mlsysim.report.card import Verdict

__all__ = ["Check", "Remedies", "Remedy"]


@frozen(kw_only=True)
class Remedy:
    """One change that makes a check hold: a field, and a value rounded to the safe side."""

    field: str
    value: Any
    words: str = attrs.field()

    @words.default
    def _words(self) -> str:
        amount = _short(self.value)
        return f"save every {amount}" if self.field == "save_interval" else f"raise {self.field} to {amount}"


# alternatives, each a group of changes to make together
Remedies: TypeAlias = tuple[tuple[Remedy, ...], ...]


def _short(value: Quantity) -> str:
    return f"{value.magnitude:.15g} {value.units:~C}"


@frozen(kw_only=True, eq=False, repr=False)
class Check(Record):
    """One thing that a plan must satisfy.

    Parameters
    ----------
    name : str
    holds : bool, array of bool, or None
        None where nothing was stated to check against: not checked, never passed.
    value, bound : Quantity
        The value must stay within the bound; the bound is None where it was not stated.
    slack : Quantity
        Bound less value; negative where the check fails.
    remedies : tuple of tuple of Remedy
        Alternatives, each a group of changes to make together.
    missing : str
        What to state where nothing was checked.
    strict : bool
        Whether value must stay below bound, rather than at most reach it.

    Examples
    --------
    >>> from mlsysim import Scenarios
    >>> check = Scenarios.MtNlgTieredCheckpoint20Gb.result.checks[1]
    >>> check.name, check.holds
    ('drain keeps up', False)
    >>> print(check.advice)
    raise durable_bandwidth to 3.54 GB/s, or save every 42.4 min
    """

    name: str
    holds: Any
    value: Quantity
    bound: Quantity | None
    slack: Quantity | None
    remedies: Remedies = ()
    missing: str = ""
    strict: bool = False

    json_fields: ClassVar[tuple[str, ...]] = ("name", "holds", "value", "bound", "slack", "advice")

    def __repr__(self) -> str:
        words = f", advice={self.advice!r}" if self.advice else ""
        return f"Check({self.name!r}, holds={self.holds}, {self.verdict().comparison}{words})"

    @property
    def advice(self) -> str:
        """What would mend it, with numbers that do; empty where it holds."""
        if self.holds is None:
            return f"state {self.missing} to have this checked"
        if np.ndim(self.holds):
            failing = int(np.size(self.holds) - np.count_nonzero(self.holds))
            return f"{failing} of {np.size(self.holds)} situations fail this check; solve one of them alone for advice" if failing else ""
        return ", or ".join(" and ".join(each.words for each in group) for group in self.remedies)

    def verdict(self, *, binary: bool = False) -> Verdict:
        """The check as a card shows it, in binary units where asked; the advice stays as it can be written down."""
        from mlsysim.report.card import Verdict

        if self.holds is None:
            return Verdict(self.name, None, f"needs {readable(self.value, binary=binary)}", self.advice)
        sign = ("<" if self.strict else "<=") if np.all(self.holds) else "against"
        if not np.ndim(self.holds) and not self.holds:
            sign = ">=" if self.strict else ">"
        return Verdict(
            self.name,
            bool(np.all(self.holds)),
            f"{readable(self.value, binary=binary)} {sign} {readable(self.bound, binary=binary)}",
            self.advice,
        )
