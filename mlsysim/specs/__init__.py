"""Nouns you could point at: what is trained, on what, and where it is saved."""

from typing import TYPE_CHECKING

from mlsysim.on_demand import on_demand
from mlsysim.specs.fleet import Fleet, Node
from mlsysim.specs.staging import StagingPlan
from mlsysim.specs.storage import Store
from mlsysim.specs.workload import Workload

if TYPE_CHECKING:
    from mlsysim.specs.huggingface import shape_from_config
    from mlsysim.specs.tensor import Tensor
    from mlsysim.specs.transformer import TransformerShape
    from mlsysim.specs.transformer_parts import Experts, LatentAttention
else:
    __getattr__ = on_demand(
        __name__,
        {
            "mlsysim.specs.huggingface": ("shape_from_config",),
            "mlsysim.specs.tensor": ("Tensor",),
            "mlsysim.specs.transformer": ("TransformerShape",),
            "mlsysim.specs.transformer_parts": ("Experts", "LatentAttention"),
        },
    )

__all__ = [
    "Experts", "Fleet", "LatentAttention", "Node", "StagingPlan", "Store", "Tensor", "TransformerShape", "Workload",
    "shape_from_config",
]  # fmt: skip
