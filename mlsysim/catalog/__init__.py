"""Numbers, each with its source and the day it was looked up."""

from typing import Any

from mlsysim.catalog.catalog import Catalog, Source, entries
from mlsysim.specs import Fleet, Node, Store, Workload

__all__ = ["Catalog", "Fleets", "Models", "Nodes", "Source", "Stores", "entries"]


def _fleet(fields: dict[str, Any]) -> Fleet:
    return Fleet(**fields | {"node": getattr(Nodes, fields["node"])})


Models: Catalog[Workload] = Catalog("Models", "models.toml", lambda fields: Workload(**fields))
Nodes: Catalog[Node] = Catalog("Nodes", "nodes.toml", lambda fields: Node(**fields))
Fleets: Catalog[Fleet] = Catalog("Fleets", "fleets.toml", _fleet)
Stores: Catalog[Store] = Catalog("Stores", "stores.toml", lambda fields: Store(**fields))
