"""What does saving a checkpoint cost, is this plan safe, how often should I save, and what must I buy?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlsysim.catalog import Fleets, Models, Nodes, Stores
from mlsysim.engine.files import load_scenario
from mlsysim.engine.scenario_types import TieredCheckpointScenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError
from mlsysim.physics.cadence import save_interval_from_steps
from mlsysim.physics.quantities import memory_from_params, transfer_time
from mlsysim.solvers import Check, TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import Experts, Fleet, LatentAttention, Node, Store, Tensor, TransformerShape, Workload, shape_from_config
from mlsysim.units import Q_, Quantity, ureg

if TYPE_CHECKING:
    from mlsysim.engine.scenario_types import LayoutCheckpointScenario
    from mlsysim.layout import CheckpointLayout, read_checkpoint

__version__ = "0.1.0"

__all__ = [
    "Q_", "Check", "CheckpointLayout", "Experts", "Fleet", "Fleets", "InputError", "LatentAttention", "LayoutCheckpointScenario",
    "Models", "Node", "Nodes", "Quantity", "Scenarios", "Store", "Stores", "Tensor", "TieredCheckpointModel",
    "TieredCheckpointResult", "TieredCheckpointScenario", "TransformerShape", "Workload", "load_scenario", "memory_from_params",
    "read_checkpoint", "save_interval_from_steps", "shape_from_config", "transfer_time", "ureg",
]  # fmt: skip

# loaded when first asked for, so that a plan without a real checkpoint does not wait for the readers
_ON_DEMAND = {
    "CheckpointLayout": "mlsysim.layout",
    "LayoutCheckpointScenario": "mlsysim.engine.scenario_types",
    "read_checkpoint": "mlsysim.layout",
}


def __getattr__(name: str) -> Any:
    if name == "layout":
        return import_module("mlsysim.layout")
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
