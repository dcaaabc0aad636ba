"""One question each: quantities in, one result out."""

from mlsysim.solvers.check import Check
from mlsysim.solvers.tiered_checkpoint import TieredCheckpointModel
from mlsysim.solvers.tiered_checkpoint_result import TieredCheckpointResult

__all__ = ["Check", "TieredCheckpointModel", "TieredCheckpointResult"]
