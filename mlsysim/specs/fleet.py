"""What it is trained on."""

from __future__ import annotations

from attrs import frozen

from mlsysim.fields import BANDWIDTH, INFORMATION, choice, count, quantity, text
from mlsysim.units import Quantity

__all__ = ["Fleet", "Node"]


@frozen(kw_only=True)
class Node:
    """One machine of a fleet. What is not stated neither limits nor is checked.

    Parameters
    ----------
    name : str
    accelerators : int
    network_bandwidth : Quantity [information / time], optional
        What the node can send to storage.
    local_read_bandwidth : Quantity [information / time], optional
        Reading its local storage, as the drain does.
    local_capacity : Quantity [information], optional
        Room on its local storage.
    local_endurance : Quantity [information / time], optional
        What its local storage may be written on average: capacity times rated drive writes per day, ``"30.72 TB/day"``.
    host_memory : Quantity [information], optional
        What a save may use of its host memory.

    Raises
    ------
    InputError
        If a field has another dimension, is not positive and finite, or accelerators is no count.

    Examples
    --------
    >>> Node(name="8-GPU", accelerators=8, network_bandwidth="400 Gbps").network_bandwidth.to("GB/s")
    <Quantity(50.0, 'gigabyte / second')>
    """

    name: str = text()
    accelerators: int = count()
    network_bandwidth: Quantity | None = quantity(BANDWIDTH, optional=True)
    local_read_bandwidth: Quantity | None = quantity(BANDWIDTH, optional=True)
    local_capacity: Quantity | None = quantity(INFORMATION, optional=True)
    local_endurance: Quantity | None = quantity(BANDWIDTH, optional=True)
    host_memory: Quantity | None = quantity(INFORMATION, optional=True)


@frozen(kw_only=True)
class Fleet:
    """So many nodes of one kind.

    Parameters
    ----------
    name : str
    node : Node
    count : int

    Raises
    ------
    InputError
        If node is no Node, or count no whole number of at least 1.

    Examples
    --------
    >>> Fleet(name="ours", node=Node(name="8-GPU", accelerators=8), count=128).accelerators
    1024
    """

    name: str = text()
    node: Node = choice(Node, example='Node(name="8-GPU", accelerators=8)')
    count: int = count()

    @property
    def accelerators(self) -> int:
        """Accelerators in the whole fleet."""
        return self.count * self.node.accelerators
