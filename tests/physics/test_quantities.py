"""Amounts, and how long they take to move."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim import Q_, InputError, memory_from_params, transfer_time


def test_memory_from_params() -> None:
    """175e9 parameters at 14 byte each are 2.45 TB."""
    assert Q_("2.45 TB") == memory_from_params(Q_("175e9 param"), Q_("14 byte/param"))


def test_memory_from_params_by_name() -> None:
    """Both arguments may be given by name, or as text."""
    assert Q_("2.45 TB") == memory_from_params(parameters="175e9 param", bytes_per_param="14 byte/param")  # type: ignore[arg-type]


def test_memory_broadcasts() -> None:
    """A column of models against a row of recipes is a table."""
    table = memory_from_params(Q_([[7e9], [70e9]], "param"), Q_([2, 14, 18], "byte/param"))
    assert [[14e9, 98e9, 126e9], [140e9, 980e9, 1260e9]] == table.to("byte").magnitude.tolist()


def test_transfer_time() -> None:
    """A 400 Gb/s line moves 1 TB in 20 s."""
    assert Q_("20 s") == transfer_time(Q_("1 TB"), Q_("400 Gb/s"))


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("14 byte/param", "175e9 param"), "memory_from_params.parameters"), ((175e9, "14 byte/param"), "memory_from_params.parameters"),
        (("175e9 param", 14), "memory_from_params.bytes_per_param"), (("175e9 token", "14 byte/param"), "memory_from_params.parameters"),
    ],
)  # fmt: skip
def test_memory_of_bad_input(arguments: tuple[object, object], place: str) -> None:
    """A law names itself and the argument that is wrong."""
    with pytest.raises(InputError, match=f"^{place} must be"):
        memory_from_params(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [(("1 TB/s", "1 TB"), "transfer_time.amount"), (("1 TB", "1 TB"), "transfer_time.bandwidth"), ((1, "1 TB/s"), "transfer_time.amount")],
)
def test_transfer_of_bad_input(arguments: tuple[object, object], place: str) -> None:
    """A law names itself and the argument that is wrong."""
    with pytest.raises(InputError, match=f"^{place} must be"):
        transfer_time(*arguments)  # type: ignore[arg-type]


def test_caller_keeps_the_array() -> None:
    """A law neither changes nor locks the arrays that it is given, and what it gives is locked."""
    source = np.array([1.0, 2.0])
    made = transfer_time(Q_(source, "byte"), Q_("1 byte/s"))
    assert ([1.0, 2.0], True, False, False) == (
        source.tolist(), source.flags.writeable, made.magnitude.flags.writeable, np.shares_memory(source, made.magnitude)
    )  # fmt: skip
