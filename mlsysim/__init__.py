"""What does saving a checkpoint cost, is this plan safe, how often should I save, and what must I buy?"""

from mlsysim.catalog import Fleets, Models, Nodes, Stores
from mlsysim.engine.files import load_scenario
from mlsysim.engine.scenario_types import TieredCheckpointScenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError
from mlsysim.physics.cadence import save_interval_from_steps
from mlsysim.physics.quantities import memory_from_params, transfer_time
from mlsysim.solvers import Check, TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import Fleet, Node, Store, Workload
from mlsysim.units import Q_, Quantity, ureg

__version__ = "0.1.0"

__all__ = [
    "Q_", "Check", "Fleet", "Fleets", "InputError", "Models", "Node", "Nodes", "Quantity", "Scenarios", "Store", "Stores",
    "TieredCheckpointModel", "TieredCheckpointResult", "TieredCheckpointScenario", "Workload", "load_scenario",
    "memory_from_params", "save_interval_from_steps", "transfer_time", "ureg",
]  # fmt: skip
