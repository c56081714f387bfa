"""Graphs: from calls on fake tensors to functional ATen graphs with their backward.

Enters: torch functions with trees of GraphValues and constants (`builder`), one call after the other.
On the way: the ATen calls beneath each (`recorder`), writes replaced by values (`functionalize`, its memory model in
`alias`, `memory` and `inverse`, twins of in-place operators in `twins`), results sorted by how eager shares memory
(`output_plan`), the backward recorded from autograd's own engine (`joint`) and cut from the forward (`partition`).
Leaves: CapturedGraph (`captured`), FunctionalGraph and JointGraph (`functional`) with an Epilogue (`outputs`), and the
conditions on symbolic sizes (`symbols`). Drivers: `finish.functional_graph` and `joint.joint_graph`.
Must not know: frames, bytecode, trackers, guards of Python values, backends.
"""
