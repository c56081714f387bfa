"""OutputPlan: decides for each result of the program how the epilogue makes it, and which values the graph returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import saved
from .alias import Alias
from .functionalize import SYMBOLIC, Functionalizer
from .geometry import overlaps
from .history import has_lost_history
from .inverse import Refused
from .node_memory import memory_of, owns_memory
from .outputs import (
    BASE,
    Epilogue,
    InputItself,
    Output,
    Slot,
    SlotInfo,
    SlotRef,
    ViewOfInput,
    ViewOfSlot,
    ViewStep,
    WriteBack,
    as_strided_within,
    data_of,
)
from .shared_inputs import count_of, is_counted
from .symbols import expression, plain
from .tree import map_tree
from .unread_calls import unread_calls

aten = torch.ops.aten
_BREAKS_GRADIENT = frozenset(("aten::detach",))
_VIEW_GRADIENTS = frozenset(
    "Alias AsStrided Conj Diagonal Expand NegView Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T "
    "Transpose Unbind Unfold Unsqueeze View ViewAsComplex ViewAsReal UnsafeView UnsafeSplit UnsafeSplitWithSizes "
    "LiftFresh".split()
)
"""Names of autograd nodes that pass gradients of a view to its base ("ViewBackward0" without its ending)."""


class OutputPlan:
    """Made after the record's forward calls went through the functionaliser.

    slots: nodes the graph returns; slot_fakes: the recorded tensor behind each slot (None for symbolic numbers), for
    which a backward starts.
    """

    def __init__(self, functionalizer: Functionalizer, outputs: tuple[Any, ...]) -> None:
        self._pass = functionalizer
        self.slots: list[fx.Node] = []
        self.slot_infos: list[SlotInfo] = []
        self.slot_fakes: list[Any] = []
        self._slot_of: dict[Any, int] = {}
        self._memory: set[Any] = set()
        self._cuts: dict[Alias, int] = {}  # views that others are taken of -> their numbers
        self._views: dict[Any, list[Alias]] = {}  # equal views -> the tensors of the program that they are
        self._inputs = {id(fake): index for index, fake in enumerate(functionalizer.record.inputs)}
        tensors = {id(fake): fake for fake in outputs if isinstance(fake, torch.Tensor)}
        aliases = [functionalizer.alias_of(fake) for fake in tensors.values()]
        self._sharers = Counter(alias.store for alias in aliases)
        self._passed = set(aliases).intersection(link for alias in aliases for link in alias.chain()[:-1])
        write_backs = [self._write_back(index) for index in sorted(functionalizer.written)]
        kinds = [self._output(fake) for fake in outputs]
        for node in unread_calls(functionalizer.emitter, self.slots):
            self._unread_slot(node)
        self._outputs = tuple(kinds), tuple(write_backs), self._counted(write_backs)

    @property
    def epilogue(self) -> Epilogue:
        """What is done around the graph with the slots that there are by now."""
        return Epilogue(tuple(self.slot_infos), *self._outputs)

    def in_numbers(self, shape: Sequence[Any]) -> tuple[int | SlotRef, ...]:
        """A shape of which each symbol is a slot."""
        return tuple(self._step_leaf(size) for size in shape)

    def _write_back(self, index: int) -> WriteBack:
        facts = self._pass.record.facts[index]
        assert facts is not None
        alias = self._pass.alias_of(facts.fake)
        moved = facts.edge_moved() and facts.fake.requires_grad
        if facts.version is None:
            mode = "no_grad"
        elif moved:
            mode = "grad"
        else:
            mode = "no_grad" if is_counted(facts) else "data"
        return WriteBack(index, self._tensor_slot(alias.store.root, moved), mode)

    def _counted(self, write_backs: Sequence[WriteBack]) -> tuple[int, ...]:
        """Inputs whose count of writes no write-back raises, though the program did; of those that share a count, one.

        Of two that share memory, only views of one tensor share the count.
        """
        facts = self._pass.record.facts
        seen = {count_of(facts[each.input]) for each in write_backs if each.mode != "data"}
        found = []
        for index, item in enumerate(facts):
            if item is not None and is_counted(item) and count_of(item) not in seen:
                seen.add(count_of(item))
                found.append(index)
        return tuple(found)

    def _output(self, fake: Any) -> Output:
        if not isinstance(fake, torch.Tensor):
            return Slot(self._number_slot(fake))
        alias = self._pass.alias_of(fake)
        root = alias.store.root
        index = alias.store.input
        if index is not None:
            itself = self._inputs.get(id(fake))
            if itself is not None:
                return InputItself(itself)
            facts = self._pass.record.facts[index]
            assert facts is not None
            base = facts.fake
            if not self._is_untracked(alias) and not saved.is_below_autograd():
                gradient = (self._history(base) or facts.gradient_edge().node) if base.requires_grad else None
                self._check_gradient(alias, gradient)
            return self._numbered(ViewOfInput(index, self._steps(alias)), alias)
        # a view without history or with repeated elements can't be a result of its own
        untracked = fake.requires_grad and self._history(fake) is None
        apart = alias.is_root or not (untracked or overlaps(alias.val) or _is_one_of_several(alias))
        if self._sharers[alias.store] == 1 and apart:
            return Slot(self._tensor_slot(alias, self._carries_gradient(fake)))
        base = self._pass.alias_of(root.fake)  # not the root itself if its shape was changed in place (t_)
        self._check_gradient(alias, self._history(root.fake))
        view = ViewOfSlot(self._tensor_slot(base, self._carries_gradient(root.fake)), self._steps(alias, base))
        return self._numbered(view, alias)

    def _numbered(self, view: Any, alias: Alias) -> Any:
        owners = self._views.setdefault(view, [])
        if alias not in owners:
            owners.append(alias)
        return replace(view, number=owners.index(alias))

    # -- slots -----------------------------------------------------------------------------------------------------

    def _tensor_slot(self, alias: Alias, differentiable: bool) -> int:
        known = self._slot_of.get(alias)
        if known is not None:
            return known
        memory = self._pass.memory
        node = memory.restride(memory.read(alias), alias.val)
        place = memory_of(node)
        if not owns_memory(place) or place in self._memory:
            node = memory.restride(self._pass.emitter.emit(aten.clone.default, (node,)), alias.val)
            place = memory_of(node)
        self._memory.add(place)
        return self._add_slot(alias, node, slot_info(alias.val, differentiable), alias.fake)

    def _number_slot(self, value: Any) -> int:
        key = expression(value)
        known = self._slot_of.get(key)
        if known is not None:
            return known
        node = self._pass.number(value)
        return self._add_slot(key, node, SlotInfo(), None)

    def _unread_slot(self, node: fx.Node) -> None:
        """A slot that no output is made of: the call is there for the error that it may raise."""
        value = node
        if not owns_memory(memory_of(node)) or memory_of(node) in self._memory:
            value = self._pass.emitter.emit(aten.clone.default, (node,))
        self._memory.add(memory_of(value))
        self._add_slot(node, value, slot_info(value.meta["val"], differentiable=False), None)

    def _add_slot(self, key: Any, node: fx.Node, info: SlotInfo, fake: Any) -> int:
        index = self._slot_of[key] = len(self.slots)
        self.slots.append(node)
        self.slot_infos.append(info)
        self.slot_fakes.append(fake)
        return index

    # -- views -----------------------------------------------------------------------------------------------------

    def _steps(self, alias: Alias, base: Alias | None = None) -> tuple[ViewStep, ...]:
        """The views from `base` (None: the root of the store) to `alias`."""
        links = alias.chain()
        if base is not None and not base.is_root and base is not alias:
            if base not in links:
                raise Refused("views are returned that were taken before the shape of their base was changed in place")
            links = links[links.index(base) + 1 :]
        elif base is alias:
            links = []
        return tuple(self._step(link, alias) for link in links)

    def _step(self, link: Alias, last: Alias) -> ViewStep:
        cut = link.op._schema.name in _BREAKS_GRADIENT
        same = self._cuts.setdefault(link, len(self._cuts) + 1) if cut or self._is_passed(link, last) else 0
        if link.op is aten.as_strided.default:
            offset = link.val.storage_offset() - self._base_offset(link)
            geometry = map_tree(self._step_leaf, (tuple(link.val.shape), tuple(link.val.stride()), offset))
            return ViewStep(as_strided_within, (BASE, *geometry), grad=link.grad, same=same)
        if link.is_data:
            return ViewStep(data_of, (BASE,), grad=link.grad, same=same)
        args = tuple(
            BASE if at == link.hole else _frozen(map_tree(self._step_leaf, arg))
            for at, arg in enumerate(link.recorded_args)
        )
        kwargs = tuple((name, _frozen(map_tree(self._step_leaf, value))) for name, value in link.kwargs.items())
        return ViewStep(link.op, args, kwargs, link.item, link.grad, same)

    def _is_passed(self, link: Alias, last: Alias) -> bool:
        """Whether a view is a result itself, and gradients of the view `last` come through it."""
        if link not in self._passed or self._pass.record.no_backward is not None:
            return False
        if not link.fake.requires_grad or has_lost_history(link.fake) or has_lost_history(last.fake):
            return False
        return link is last or _passes_gradient(self._history(last.fake), self._history(link.fake))

    def _base_offset(self, link: Alias) -> Any:
        assert link.parent is not None
        return link.parent.val.storage_offset()

    def _step_leaf(self, leaf: Any) -> Any:
        leaf = plain(leaf)
        return SlotRef(self._number_slot(leaf)) if isinstance(leaf, SYMBOLIC) else leaf

    def _is_untracked(self, alias: Alias) -> bool:
        """A view of an input that was taken with gradients off and requires none: it comes out so when taken again.

        Whether it says that it requires gradients is told by what the input itself is a view of.
        """
        return not alias.fake.requires_grad and not any(link.grad for link in alias.chain())

    def _check_gradient(self, alias: Alias, root_gradient: Any) -> None:
        """A view taken again after the graph must have the gradient that the recorded one has."""
        fake = alias.fake
        if fake is alias.store.root.fake:
            return
        names = [link.op._schema.name for link in alias.chain()]
        floating = alias.val.dtype.is_floating_point or alias.val.dtype.is_complex
        tracked = root_gradient is not None and floating and not _BREAKS_GRADIENT.intersection(names)
        if fake.requires_grad != tracked:
            raise Refused("a returned view has another gradient history than its base")
        if not tracked:
            return
        if all(link.grad for link in alias.chain()):
            same = _passes_gradient(self._history(fake), root_gradient)
        else:  # taken under no_grad: it says that it requires grad, but has no history
            same = self._history(fake) is None
        if not same:
            raise Refused("a returned view carries gradients in another way than through its base")

    def _history(self, fake: Any) -> Any:
        """The autograd node of a fake. For a view of what was written to, asking takes the view again."""
        reason = self._pass.record.no_backward
        if reason is not None and fake.requires_grad:
            raise Refused(reason)
        return fake.grad_fn

    def _carries_gradient(self, fake: Any) -> bool:
        if fake.requires_grad and self._history(fake) is None:
            raise Refused("a tensor made in the graph was given requires_grad and returned")
        return fake.requires_grad


def _is_one_of_several(alias: Alias) -> bool:
    """Whether autograd knows it as one of several views of one call: writing to such a view in place is an error."""
    return bool(alias.fake.requires_grad) and any(link.item is not None and link.grad for link in alias.chain())


def slot_info(fake: Any, differentiable: bool) -> SlotInfo:
    """The geometry of a fake."""
    return SlotInfo(tuple(fake.shape), tuple(fake.stride()), fake.dtype, fake.device, differentiable)


def _frozen(tree: Any) -> Any:
    """Lists as tuples: equal outputs are found by hash."""
    return tuple(_frozen(item) for item in tree) if isinstance(tree, (list, tuple)) else tree


def _passes_gradient(node: Any, target: Any) -> bool:
    """True when a chain of view gradients leads from `node` to `target`."""
    while node is not None and node is not target:
        name = node.name().partition("Backward")[0]
        if name not in _VIEW_GRADIENTS or len(node.next_functions) != 1:
            return False
        node = node.next_functions[0][0]
    return node is not None
