"""Recipes: what a save holds for each parameter."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import attrs
import pytest

from mlsysim import Adapters, Component, InputError, Recipes, StateRecipe, Tensor
from mlsysim.specs.recipe import Blockwise, Factored, Matrices, Others

MATRIX = Tensor(name="layers.0.attention.query.weight", shape=(4096, 1024), dtype="bfloat16")
NORM = Tensor(name="layers.0.attention_norm.weight", shape=(4096,), dtype="bfloat16")
EMBEDDING = Tensor(name="embedding.weight", shape=(32000, 4096), dtype="bfloat16")


def kept(rule: Any, tensor: Tensor) -> list[tuple[int, ...]]:
    return [each.shape for each in rule.kept(tensor, "float32")]


def test_adafactor_keeps_a_row_and_a_column() -> None:
    """A matrix is factored into a row and a column; a vector and a small matrix are not."""
    assert [(4096,), (1024,)] == kept(Factored(), MATRIX)
    assert [(4096,)] == kept(Factored(), NORM)
    assert [(64, 4096)] == kept(Factored(), Tensor(name="small", shape=(64, 4096), dtype="float32"))


def test_eight_bits_have_scales() -> None:
    """A large tensor has one scale per block of 256, a small one stays fp32."""
    assert [(4096, 1024), (16384,)] == kept(Blockwise(), MATRIX)
    assert ["float32"] == [each.dtype for each in Blockwise().kept(Tensor(name="b", shape=(4095,), dtype="float32"), "uint8")]


def test_muon_parts_the_tensors() -> None:
    """Muon's momentum is for hidden matrices, and Adam's moments for all the rest."""
    for tensor in (MATRIX, NORM, EMBEDDING):
        assert 1 == len(kept(Matrices(), tensor)) + len(kept(Others(), tensor))
    assert [MATRIX.shape] == kept(Matrices(), MATRIX)


def test_adapters_hold_two_thin_matrices() -> None:
    """Adapters of rank 16 hold 16 rows and 16 columns for a matrix, and nothing for a norm or an embedding."""
    recipe = attrs.evolve(Recipes.bf16_weights, adapters=Adapters(rank=16))
    assert {"weights": 2 * 16 * (4096 + 1024)} == recipe.bytes_by_component([MATRIX, NORM, EMBEDDING])


def test_adapters_with_their_base() -> None:
    """A save with the frozen base holds every weight as well."""
    recipe = attrs.evolve(Recipes.bf16_weights, adapters=Adapters(rank=16, base="bfloat16"))
    assert {"frozen base": MATRIX.bytes, "weights": 2 * 16 * 5120} == recipe.bytes_by_component([MATRIX])


@pytest.mark.parametrize("name", list(Recipes))
def test_catalog_adds_up(name: str) -> None:
    """Where a recipe of the catalog states a plain number of bytes, its components add up to it."""
    stated = tomllib.loads(files("mlsysim.catalog").joinpath("recipes.toml").read_text())[name]["bytes"]["value"]
    found = getattr(Recipes, name).bytes_per_param([MATRIX]).magnitude
    number, _, rest = stated.partition(" byte/param")
    if rest:
        assert abs(float(number) - found) < 0.5
    else:
        assert float(number) == found


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Component(name="w", dtype="float33"), "Component.dtype"),
        (lambda: Component(name="w", dtype=32), "Component.dtype"),
        (lambda: StateRecipe(name="empty", components=()), "StateRecipe.components"),
        (lambda: StateRecipe(name="two", components=(Component(name="w", dtype="int8"), Component(name="w", dtype="int8"))), "components"),
        (lambda: Adapters(rank=0), "Adapters.rank"),
        (lambda: Recipes.mixed_adam.bytes_per_param([]), "bytes_per_param"),
    ],
)
def test_bad_recipes_are_named(make: Any, field: str) -> None:
    """A recipe that makes no sense is refused by the field."""
    with pytest.raises(InputError, match=field):
        make()
