"""What does saving a checkpoint cost, is this plan safe, how often should I save, and what must I buy?"""

from typing import TYPE_CHECKING

from mlsysim.catalog import Fleets, Models, Nodes, Stores
from mlsysim.engine.files import load_scenario
from mlsysim.engine.scenario_types import Scenario, TieredCheckpointScenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError
from mlsysim.on_demand import on_demand
from mlsysim.physics.cadence import save_interval_from_steps
from mlsysim.physics.quantities import memory_from_params, transfer_time
from mlsysim.solvers import Check, TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import Fleet, Node, StagingPlan, Store, Workload
from mlsysim.units import Q_, Quantity, ureg

if TYPE_CHECKING:
    from mlsysim.catalog.recipes import Recipes
    from mlsysim.engine.scenario_types import LayoutCheckpointScenario
    from mlsysim.layout import CheckpointLayout, Finding, Limits, Report, TensorInfo, read_checkpoint
    from mlsysim.layout.prediction import predict_layout
    from mlsysim.layout.state_bytes import state_bytes
    from mlsysim.specs import Experts, LatentAttention, Tensor, TransformerShape, shape_from_config
    from mlsysim.specs.parallel import ParallelPlan, Placed
    from mlsysim.specs.plan_text import plan_from_text
    from mlsysim.specs.recipe import Adapters, Component, StateRecipe
else:
    __getattr__ = on_demand(
        __name__,
        {
            "mlsysim.engine.scenario_types": ("LayoutCheckpointScenario",),
            "mlsysim.catalog.recipes": ("Recipes",),
            "mlsysim.layout": ("CheckpointLayout", "Finding", "Limits", "Report", "TensorInfo", "read_checkpoint"),
            "mlsysim.layout.prediction": ("predict_layout",),
            "mlsysim.layout.state_bytes": ("state_bytes",),
            "mlsysim.specs.parallel": ("ParallelPlan", "Placed"),
            "mlsysim.specs.plan_text": ("plan_from_text",),
            "mlsysim.specs.recipe": ("Adapters", "Component", "StateRecipe"),
            "mlsysim.specs": ("Experts", "LatentAttention", "Tensor", "TransformerShape", "shape_from_config"),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "Q_", "Adapters", "Check", "CheckpointLayout", "Component", "Experts", "Finding", "Fleet", "Fleets", "InputError",
    "LatentAttention", "LayoutCheckpointScenario", "Limits", "Models", "Node", "Nodes", "ParallelPlan", "Placed", "Quantity",
    "Recipes", "Report", "Scenario", "Scenarios", "StagingPlan", "StateRecipe", "Store", "Stores", "Tensor", "TensorInfo",
    "TieredCheckpointModel", "TieredCheckpointResult", "TieredCheckpointScenario", "TransformerShape", "Workload",
    "load_scenario", "memory_from_params", "plan_from_text", "predict_layout", "read_checkpoint", "save_interval_from_steps",
    "shape_from_config", "state_bytes", "transfer_time", "ureg",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
