"""What is trained."""

from __future__ import annotations

from attrs import frozen

from mlsysim.fields import PARAMETERS, quantity, text
from mlsysim.units import Quantity

__all__ = ["Workload"]


@frozen(kw_only=True)
class Workload:
    """A model in training, by its number of parameters.

    Parameters
    ----------
    name : str
    parameters : Quantity [parameter]
        Each counted once, tied weights too.

    Raises
    ------
    InputError
        If the name is no line of text, or parameters is not a positive number of parameters.

    Examples
    --------
    >>> print(Workload(name="my 70B", parameters="70.6e9 param").parameters)
    70600000000.0 parameter
    """

    name: str = text()
    parameters: Quantity = quantity(PARAMETERS)
