"""Nouns you could point at: what is trained, on what, and where it is saved."""

from mlsysim.specs.fleet import Fleet, Node
from mlsysim.specs.storage import Store
from mlsysim.specs.workload import Workload

__all__ = ["Fleet", "Node", "Store", "Workload"]
