"""What does saving a checkpoint cost, is this plan safe, how often should I save, and what must I buy?"""

from typing import TYPE_CHECKING

from mlsysim.catalog import Fleets, Models, Nodes, Stores
from mlsysim.engine.files import load_scenario
from mlsysim.engine.scenario_types import TieredCheckpointScenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError
from mlsysim.on_demand import on_demand
from mlsysim.physics.cadence import save_interval_from_steps
from mlsysim.physics.quantities import memory_from_params, transfer_time
from mlsysim.solvers import Check, TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import Fleet, Node, Store, Workload
from mlsysim.units import Q_, Quantity, ureg

if TYPE_CHECKING:
    from mlsysim.engine.scenario_types import LayoutCheckpointScenario
    from mlsysim.layout import CheckpointLayout, read_checkpoint
    from mlsysim.specs import Experts, LatentAttention, Tensor, TransformerShape, shape_from_config
else:
    __getattr__ = on_demand(
        __name__,
        {
            "mlsysim.engine.scenario_types": ("LayoutCheckpointScenario",),
            "mlsysim.layout": ("CheckpointLayout", "read_checkpoint"),
            "mlsysim.specs": ("Experts", "LatentAttention", "Tensor", "TransformerShape", "shape_from_config"),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "Q_", "Check", "CheckpointLayout", "Experts", "Fleet", "Fleets", "InputError", "LatentAttention", "LayoutCheckpointScenario",
    "Models", "Node", "Nodes", "Quantity", "Scenarios", "Store", "Stores", "Tensor", "TieredCheckpointModel",
    "TieredCheckpointResult", "TieredCheckpointScenario", "TransformerShape", "Workload", "load_scenario", "memory_from_params",
    "read_checkpoint", "save_interval_from_steps", "shape_from_config", "transfer_time", "ureg",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
