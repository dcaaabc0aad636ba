"""The public names of the scenarios."""

from typing import TYPE_CHECKING

from mlsysim.engine.scenario_definitions.base import Scenario
from mlsysim.engine.scenario_definitions.data import TieredCheckpointScenario
from mlsysim.on_demand import on_demand

if TYPE_CHECKING:
    from mlsysim.engine.scenario_definitions.layout import LayoutCheckpointScenario
else:
    __getattr__ = on_demand(__name__, {"mlsysim.engine.scenario_definitions.layout": ("LayoutCheckpointScenario",)})

__all__ = ["LayoutCheckpointScenario", "Scenario", "TieredCheckpointScenario"]
