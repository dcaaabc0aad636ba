"""What a checkpoint holds, real or predicted: one columnar layout, one reader per format."""

from mlsysim.layout.findings import Finding, Report
from mlsysim.layout.layout import CheckpointLayout, TensorInfo
from mlsysim.layout.limits import Limits
from mlsysim.layout.reading import read_checkpoint

__all__ = ["CheckpointLayout", "Finding", "Limits", "Report", "TensorInfo", "read_checkpoint"]
