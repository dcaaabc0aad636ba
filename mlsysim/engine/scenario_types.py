"""The public names of the scenarios; what reads real checkpoints is loaded when it is first asked for."""

from typing import TYPE_CHECKING, Any

from mlsysim.engine.scenario_definitions.base import Scenario
from mlsysim.engine.scenario_definitions.data import TieredCheckpointScenario

if TYPE_CHECKING:
    from mlsysim.engine.scenario_definitions.layout import LayoutCheckpointScenario

__all__ = ["LayoutCheckpointScenario", "Scenario", "TieredCheckpointScenario"]


def __getattr__(name: str) -> Any:
    if name == "LayoutCheckpointScenario":
        from mlsysim.engine.scenario_definitions.layout import LayoutCheckpointScenario

        return LayoutCheckpointScenario
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
