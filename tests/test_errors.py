"""The one exception, and the sentence it speaks."""

from __future__ import annotations

import copy
import pickle

import pytest

from mlsysim.errors import InputError, nearest, shown


def test_sentence() -> None:
    """An InputError names the place, the rule, the value and the fix, in that order."""
    error = InputError("Fleet.count", "a whole number of at least 1", -4, "Write count=256.")
    assert "Fleet.count must be a whole number of at least 1; got -4. Write count=256." == str(error)


def test_is_a_value_error() -> None:
    """Whoever catches ValueError catches it."""
    assert issubclass(InputError, ValueError)


def test_parts_can_be_read() -> None:
    """Place, rule, value and fix are attributes, and a single fault is its own only fault."""
    error = InputError("a", "b", "c", "d")
    assert ("a", "b", "'c'", "d", (error,)) == (error.place, error.rule, error.value, error.fix, error.faults)


def test_together_is_flat() -> None:
    """Faults of faults are told as one list."""
    one, two, three = (InputError(place, "good", 0, "Mend it.") for place in "abc")
    both = InputError.together([InputError.together([one, two]), three])
    assert (one, two, three) == both.faults
    assert ["3 faults:", f"  {one}", f"  {two}", f"  {three}"] == str(both).splitlines()


def test_together_of_one_is_that_one() -> None:
    """A single fault needs no list."""
    one = InputError("a", "good", 0, "Mend it.")
    assert one is InputError.together([one])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    """An InputError comes back from a pickle with its text and its parts."""
    error = InputError("Fleet.count", "at least 1", object, "Write 256.")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert (str(error), error.place, error.rule, error.value, error.fix) == (str(back), back.place, back.rule, back.value, back.fix)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))], ids=["deepcopy", "pickle"])
def test_several_faults_pickle(again: object) -> None:
    """An InputError with several faults keeps each of them."""
    error = InputError.together([InputError("a", "good", 0, "Mend it."), InputError("b", "good", 1, "Mend it.")])
    back = again(error)  # type: ignore[operator]
    assert (str(error), [str(fault) for fault in error.faults]) == (str(back), [str(fault) for fault in back.faults])


def test_pickles_though_its_value_does_not() -> None:
    """The value is kept as it was shown, so that anything can be wrong and still cross processes."""
    error = InputError("a", "good", lambda: None, "Mend it.")
    assert str(error) == str(pickle.loads(pickle.dumps(error)))


def test_moved_to_a_place() -> None:
    """The same fault can be told at its place in a file."""
    error = InputError("Fleet.count", "at least 1", 0, "Write 256.").at("plan.toml: fleet.count")
    assert "plan.toml: fleet.count must be at least 1; got 0. Write 256." == str(error)


@pytest.mark.parametrize(
    "value", ["x" * 10**6, list(range(10**4)), "a\nb\n" * 50, {"key": "y" * 500}], ids=["text", "list", "lines", "dict"]
)
def test_value_takes_one_line(value: object) -> None:
    """What was given is shown on one line of at most 80 characters."""
    text = shown(value)
    assert (True, True) == (len(text) <= 80, text.isprintable())


def test_huge_int_is_described() -> None:
    """An int that is too long to print is told by its size."""
    assert "a whole number of 33220 bits" == shown(10**10_000)


def test_failing_repr_hides_no_fault() -> None:
    """A value that cannot be printed still gives the error about its field."""

    class Evil:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    assert "an unprintable Evil" == shown(Evil())


@pytest.mark.parametrize("place", ["a\nb", "a\x1b[31mb", "a\u202eb", "\udcff.toml"])
def test_place_takes_one_line(place: str) -> None:
    """A key or file name with control codes in it reaches no terminal as such."""
    assert str(InputError(place, "good", 0, "Mend it.")).isprintable()


def test_nearest_ignores_case() -> None:
    """The nearest name is found whatever the case of what was typed."""
    assert "Did you mean Llama3_70B?" == nearest("llama3_70b", ["Llama3_70B", "Gpt3_175B"])


def test_nearest_lists_where_nothing_is_near() -> None:
    """Where nothing is near, the known names are listed."""
    assert "Known: Gpt3_175B, Llama3_70B." == nearest("x", ["Llama3_70B", "Gpt3_175B"])


@pytest.mark.parametrize("name", [5, None, "", "\0", "x" * 10**6, ["a"]])
def test_nearest_takes_anything(name: object) -> None:
    """A name that is no name is answered all the same."""
    assert "Known: fleet." == nearest(name, ["fleet"])


def test_nearest_of_nothing() -> None:
    """Where no name is known, that is said."""
    assert "None is known." == nearest("x", [])
