"""No odd value gets into a specification: each field refuses what it cannot be, under its own name."""

from __future__ import annotations

import decimal
from typing import Any

import attrs
import numpy as np
import pytest

from mlsysim import Fleet, InputError, Node, StagingPlan, Workload
from mlsysim.layout.limits import Limits
from mlsysim.layout.prediction import predict_layout
from mlsysim.specs.parallel import ParallelPlan, Placed
from mlsysim.specs.recipe import Adapters, Blockwise, Component, Factored, StateRecipe
from mlsysim.specs.sharding import Flat
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.transformer import TransformerShape
from mlsysim.specs.transformer_parts import Experts, LatentAttention

NODE = Node(name="8-GPU", accelerators=8)
TENSOR = Tensor(name="w", shape=(2, 3), dtype="float32")
WEIGHTS = Component(name="weights", dtype="float32")
GIVEN: dict[type, dict[str, Any]] = {
    Workload: {"name": "a", "parameters": "7e9 param"},
    Node: {"name": "a", "accelerators": 8},
    Fleet: {"name": "a", "node": NODE, "count": 3},
    StagingPlan: {},
    Tensor: {"name": "w", "shape": (2, 3), "dtype": "float32"},
    Placed: {"tensor": TENSOR},
    ParallelPlan: {},
    Component: {"name": "weights", "dtype": "float32"},
    Adapters: {"rank": 3},
    StateRecipe: {"name": "r", "components": (WEIGHTS,)},
    Factored: {},
    Blockwise: {},
    Flat: {},
    TransformerShape: {"layers": 2, "hidden": 8, "feed_forward": 8, "heads": 2, "vocabulary": 9},
    Experts: {"number": 8, "active": 2, "feed_forward": 3},
    LatentAttention: {"key_value_rank": 3, "position_free_size": 3, "rotary_size": 3, "value_size": 3},
    Limits: {},
}
# what no field of any of them can be
ODD = [
    0.5, float("nan"), float("inf"), -1, 10**400, b"x", object(), np.array([1, 2]), np.array([]), np.float64(0.5), np.array(0.5),
    decimal.Decimal(3), 1j, int, {1}, {"a": 1}, range(3), [None], "x" * 2000,
]  # fmt: skip
FIELDS = [pytest.param(kind, each.name, id=f"{kind.__name__}.{each.name}") for kind in GIVEN for each in attrs.fields(kind)]


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_odd_values_are_refused(kind: type, name: str) -> None:
    """An array, a number that is no count, an object of another class or endless text is refused on one line under the field's name."""
    for value in ODD:
        with pytest.raises(InputError) as caught:
            kind(**GIVEN[kind] | {name: value})
        assert (True, True) == (caught.value.place.startswith(f"{kind.__name__}.{name}"), str(caught.value).isprintable())


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Placed, "sharded", 1),
        (Placed, "stage", True),
        (Placed, "expert", 2**40),
        (Placed, "tensor_axis", 2),
        (ParallelPlan, "zero", 2.0),
        (ParallelPlan, "stage_layers", b"\3"),
        (ParallelPlan, "writers", "balanced"),
        (Component, "writers", "balanced"),
        (Component, "prefix", None),
        (Adapters, "on", "query"),
        (Adapters, "base", "x"),
        (StateRecipe, "adapters", 3),
        (StateRecipe, "components", WEIGHTS),
        (Flat, "alignment", 0),
        (Blockwise, "block", 0),
        (Limits, "depth", True),
        (TransformerShape, "layers", 10**9),
    ],
)
def test_what_only_looks_right_is_refused(kind: type, name: str, value: Any) -> None:
    """A value that would count as another, or be taken apart, is refused under the field's name."""
    with pytest.raises(InputError, match=f"^{kind.__name__}.{name} must be"):
        kind(**GIVEN[kind] | {name: value})


def test_experts_without_end_are_refused() -> None:
    """Layers and experts that would make tensors without end are refused at once."""
    with pytest.raises(InputError, match=r"^TransformerShape.layers must be few enough for 500,000 tensors"):
        TransformerShape(**GIVEN[TransformerShape] | {"experts": Experts(number=10**9, active=2, feed_forward=3)})


def test_a_stage_that_the_plan_has_not_is_refused() -> None:
    """A tensor on a stage beyond the pipeline is held by nobody."""
    recipe = StateRecipe(name="r", components=(WEIGHTS,))
    with pytest.raises(InputError, match=r"^Placed.stage must be a stage of the plan, below 2"):
        predict_layout([Placed(tensor=TENSOR, stage=2)], recipe, ParallelPlan(pipeline=2))
