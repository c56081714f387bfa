"""Which results of a graph no part of the program gets: core reads them and lets them go."""

from __future__ import annotations

from ..graph.functional import JointGraph
from ..graph.outputs import Epilogue, Slot, ViewOfSlot
from ..graph.partition import Partition


def of_inference(epilogue: Epilogue) -> frozenset[int]:
    """Slots that are written back to inputs and are nothing else."""
    written = {write.slot for write in epilogue.write_backs}
    return frozenset(written.difference(each.index for each in epilogue.outputs if isinstance(each, Slot | ViewOfSlot)))


def of_forward(joint: JointGraph, parts: Partition) -> frozenset[int]:
    """What the forward hands to its backward alone, which autograd holds until that has run, and writes back."""
    extras = sum(value.kind == "extra" for value in parts.saved)
    saved = {value.index for value in parts.saved if value.kind == "slot"}
    written = of_inference(joint.epilogue) - saved
    return written | frozenset(range(joint.forward_outputs, joint.forward_outputs + extras))
