"""What trackers may ask of the interpreter (`Tracer`), of the side-effect log and of the code generator (`Emitter`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol

from .base import VariableTracker

VT = VariableTracker


class SideEffectLog(Protocol):
    """Records what the traced code changes, so that it is replayed after the graph ran."""

    def mutated(self, tracker: VT) -> None:
        """`tracker` (a mutable kind) is about to change for real: its final state is written back, once."""

    def is_mutated(self, tracker: VT) -> bool: ...

    @property
    def empty(self) -> bool:
        """True while nothing outside needs to change."""

    def refuse_if_sealed(self) -> None:
        """Something outside changes by other means than through a tracker."""

    def is_new(self, tracker: VT) -> bool:
        """The object was made by the traced code: nobody outside has seen it."""

    def store_global(self, namespace: dict[str, Any], source: Any, name: str, value: VT | None) -> None:
        """A global was bound, or with None deleted; `source` reaches the namespace."""

    def global_value(self, namespace: dict[str, Any], name: str) -> tuple[bool, VT | None]:
        """(True, value or None when deleted) where the traced code bound the name."""


class Emitter(Protocol):
    """The code generator of `reconstruct` and `write_back`. Each method appends bytecode; the stack grows by one
    where it says `push`."""

    def load(self, tracker: VT) -> None:
        """Push the object; an object needed twice is made once (identity holds)."""

    def load_source(self, source: Any) -> None:
        """Push what the source reaches."""

    def load_graph_output(self, value: Any) -> None:
        """Push what the graph computes for a GraphValue."""

    def load_const(self, value: Any) -> None:
        """Push a constant. Any object may be a constant; user objects that could keep a model alive must not be."""

    def load_global_object(self, value: Any) -> None:
        """Push an importable object (function, class of torch, a builtin or the standard library)."""

    def build_tuple(self, count: int) -> None: ...
    def build_list(self, count: int) -> None: ...
    def build_map(self, count: int) -> None:
        """Pop 2*count values (key, value, key, value ...), push the dict."""

    def build_set(self, count: int) -> None: ...
    def build_slice(self, count: int) -> None: ...
    def push_null(self) -> None:
        """Prepare a call: goes before the callable on every version (the emitter reorders on 3.13)."""

    def push_null_under(self, depth: int) -> None:
        """Prepare a call whose callable will stand below `depth` values that are already on the stack.

        Emit the callable next, then bring it under the values with `swap`."""

    def call(self, count: int) -> None:
        """Call the callable below `count` positional arguments; push the result."""

    def call_keywords(self, names: tuple[str, ...], count: int) -> None:
        """As `call`, the last len(names) of `count` arguments being keywords."""

    def call_method(self, name: str, load_args: Sequence[VT]) -> None:
        """Replace the object on top by object.name(*args)."""

    def load_entered_exit(self, context: Any) -> None:
        """Make the context manager, enter it, push its bound __exit__."""

    def leave_region(self, context: Any) -> None:
        """Let a real context manager leave the region that it entered before the traced code."""

    def make_function(self, function: Any) -> None:
        """Push the function that a NestedFunctionVariable stands for."""

    def load_attr(self, name: str) -> None: ...
    def store_attr(self, name: str) -> None:
        """Pop object (top) and value below it: object.name = value."""

    def delete_attr(self, name: str) -> None: ...
    def binary_subscr(self) -> None: ...
    def store_subscr(self) -> None:
        """Pop key (top), container, value: container[key] = value."""

    def delete_subscr(self) -> None: ...
    def pop_top(self) -> None: ...
    def copy_top(self) -> None: ...
    def swap(self, depth: int) -> None: ...
    def is_made(self, tracker: VT) -> bool:
        """True when the object exists already, made by a part of it that leads back to it."""

    def remember(self, tracker: VT) -> None:
        """Store the object on top (keeps it there) as the one copy of `tracker`: later loads give the same object.

        A kind whose contents may refer to itself emits the empty object, `remember`s it and fills it then.
        """


class Tracer(Protocol):
    """The interpreter as trackers see it."""

    side_effects: SideEffectLog
    builder: Any  # graph.GraphBuilder
    options: Any  # CompileOptions
    line: Any  # the UserLine being traced
    module_name: str  # the module whose code is traced

    # making trackers
    def wrap(self, value: Any, source: Any, constant: bool = False) -> VT:
        """The tracker of a real object reached by `source`, with the guards its kind needs; one per object.

        constant: the object can't change while other guards hold (a function inside a guarded class); no guard is made
        and the object itself is used when it must be given back.
        """

    def lazy(self, value: Any, source: Any) -> VT:
        """As wrap, but no guard before first use."""

    def constant(self, value: Any) -> VT:
        """A tracker of a value the traced code made (int, str, None, dtype, ...)."""

    def is_untouched(self, value: Any) -> bool:
        """True for a real object that the traced code has not changed."""

    def real_cell(self, cell: Any, name: str, source: Any) -> Any:
        """The CellVariable of a real cell; one per cell object."""

    def new_list(self, items: Iterable[VT]) -> VT: ...
    def new_tuple(self, items: Iterable[VT], cls: type = tuple) -> VT:
        """A tuple; `cls` may be a namedtuple, torch.Size or another tuple subclass."""

    def new_dict(self, pairs: Iterable[tuple[VT, VT]], cls: type = dict) -> VT: ...
    def new_set(self, items: Iterable[VT], cls: type = set) -> VT: ...
    def make_class(self, meta: type, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """type.__new__(meta, *args, **kwargs)."""

    def descriptor(self, cls: type, args: Sequence[VT]) -> VT:
        """staticmethod(function), classmethod(function) or property(...)."""

    def is_in_a_variable(self, tracker: VT) -> bool:
        """True while a local variable of a traced call holds the object."""

    def stands_for(self, value: Any, tracker: VT) -> None:
        """From here on, what gives this graph value gives this tracker."""

    def register_hook(self, tensor: Any, method: str, hook: VT) -> VT:
        """tensor.method(hook); the tracker of the handle."""

    def learn(self, values: Iterable[Any]) -> None:
        """Trace anew, knowing the buffers that tensors of one whole number come from; return where that is no help."""

    def decision(self, tensor: Any) -> bool | None:
        """The truth of a tensor whose number the frame gets, which a guard then holds; None where it is none."""

    def draw(self, generator: Any, method: str, values: Sequence[Any], keywords: dict[str, Any]) -> VT:
        """What generator.method(...) gives, drawn anew in each call of the frame."""

    def seeds(self, generator: Any) -> None:
        """The traced code has seeded a generator from outside; what that gives from here on is known."""

    def is_unreal(self, value: Any) -> bool:
        """True for a class that the traced code defined and for what stands for trackers in it."""

    def enter_device(self, device: VT) -> VT:
        """Make tensors on the device from here on, as `with device` does; the device."""

    def leave_mode(self) -> VT:
        """Leave the device or mode that was entered last."""

    def text_later(self, function: Callable[..., str], parts: Sequence[VT]) -> VT | None:
        """function(*parts) as a text that is not part of the entry before it is read; see unread.py."""

    def new_iterator(self, produce: Callable[[Tracer], VT | None], cls: type) -> VT:
        """An iterator whose next_item is `produce(tx)` (None = end); `cls` is its Python class."""

    def graph_call(self, fn: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """Add fn(*args, **kwargs) to the graph; an exception that eager would raise too is raised in the program."""

    def graph_method(self, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """Add args[0].name(*args[1:], **kwargs) to the graph."""

    def run_on_fakes(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """fn on fake values, outside the graph: questions about metadata."""

    def graph_result(self, value: Any, derived: bool = False) -> VT:
        """The tracker of what GraphBuilder.call_function returned: GraphValue leaves become tensors or symbolic
        numbers, containers become trackers of containers, the rest constants."""

    # guards
    def guard(self, source: Any, check: Any, reason: str = "") -> None:
        """Assume `check` of what `source` reaches; nothing to do when source is None."""

    def guard_instance_keys(self, owner: VT) -> None:
        """Assume the names in a real object's instance dict, in order."""

    # running
    def iterate_by_index(self, tracker: VT) -> VT:
        """An iterator by __getitem__ with 0, 1, ... until IndexError."""

    def answer(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """fn(*args, **kwargs) for real, for questions about state that the global-state guard holds."""

    def global_module_hooks(self) -> bool:
        """True when hooks for all modules are registered; guarded."""

    def passed_unseen(self, error: VT) -> None:
        """The exception passes frames of a library whose code tracing does not run."""

    def until_stop(self, next_method: VT | None) -> VT | None:
        """Call __next__; None when it raises StopIteration."""

    def truth(self, tracker: VT) -> bool: ...
    def call_function(self, fn: VT, args: Sequence[VT], kwargs: dict[str, VT] | None = None) -> VT: ...
    def inline(self, function: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT] | None = None) -> VT:
        """Trace into a Python function that is ours or the standard library's (a polyfill, object.__init__ twin)."""

    def binary(self, op: Callable[..., Any], left: VT, right: VT) -> VT:
        """op(left, right) for op in the operator module (add, iadd, lt, eq, contains, is_, ...)."""

    def unary(self, op: Callable[..., Any], operand: VT) -> VT: ...
    def compare_equal(self, left: VT, right: VT) -> bool:
        """left == right as a bool that tracing can decide (identity first, as containers compare)."""

    def raise_exception(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise in the traced program; args are Python values or trackers."""
