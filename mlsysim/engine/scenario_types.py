"""The public names of the scenarios."""

from mlsysim.engine.scenario_definitions.base import Scenario
from mlsysim.engine.scenario_definitions.data import TieredCheckpointScenario

__all__ = ["Scenario", "TieredCheckpointScenario"]
