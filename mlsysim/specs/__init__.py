"""Nouns you could point at: what is trained, on what, and where it is saved."""

from mlsysim.specs.fleet import Fleet, Node
from mlsysim.specs.huggingface import shape_from_config
from mlsysim.specs.storage import Store
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.transformer import TransformerShape
from mlsysim.specs.transformer_parts import Experts, LatentAttention
from mlsysim.specs.workload import Workload

__all__ = ["Experts", "Fleet", "LatentAttention", "Node", "Store", "Tensor", "TransformerShape", "Workload", "shape_from_config"]
