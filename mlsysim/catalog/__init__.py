"""Numbers, each with its source and the day it was looked up."""

from typing import Any

from mlsysim.catalog.catalog import Catalog, Source, entries
from mlsysim.specs import Fleet, Node, Store, Workload

__all__ = ["Catalog", "Fleets", "Models", "Nodes", "Source", "Stores", "entries"]


def _fleet(fields: dict[str, Any]) -> Fleet:
    return Fleet(**fields | {"node": getattr(Nodes, fields["node"])})


Models: Catalog[Workload] = Catalog(name="Models", file="models.toml", build=lambda fields: Workload(**fields))
Nodes: Catalog[Node] = Catalog(name="Nodes", file="nodes.toml", build=lambda fields: Node(**fields))
Fleets: Catalog[Fleet] = Catalog(name="Fleets", file="fleets.toml", build=_fleet)
Stores: Catalog[Store] = Catalog(name="Stores", file="stores.toml", build=lambda fields: Store(**fields))
