"""Sources, checks and guard sets: compared by content, flattened with shared paths, explained in words. No torch."""

import builtins
import types

from core.errors import UserLine
from core.guards import (
    AttrSource,
    BuiltinSource,
    CellSource,
    ClosureSource,
    ConstSource,
    DictItemSource,
    DictKeys,
    Equals,
    FunctionPartSource,
    GlobalSource,
    Guard,
    GuardSet,
    Held,
    InstanceAttrSource,
    InstanceDictSource,
    IntRange,
    Is,
    IsNot,
    Length,
    ListItemSource,
    LocalSource,
    MethodPartSource,
    MissingGlobal,
    MissingInstanceAttr,
    MissingKey,
    ModuleSource,
    NotSameAs,
    Predicate,
    SameAs,
    SlotAttrSource,
    TupleItemSource,
    TypeAttrSource,
    TypeIs,
    TypeSource,
)
from core.guards.failure import describe_failure
from core.guards.tree import build_program, flatten

EVERY_INTERPRETER = True

X, Y = LocalSource("x", 0), LocalSource("y", 1)


class Owner:
    pass


def reason(guards, *args, closure=None, **module):
    """The reason why a program of `guards` misses."""
    program, owners = build_program(guards)
    return describe_failure(owners, program, args, module, vars(builtins), closure)


def test_sources_of_one_path_are_equal_and_hash_alike():
    one, two = InstanceAttrSource(DictItemSource(X, "k"), "a"), InstanceAttrSource(DictItemSource(X, "k"), "a")
    assert one == two and hash(one) == hash(two) and one is not two
    assert one != InstanceAttrSource(DictItemSource(Y, "k"), "a")
    assert InstanceAttrSource(X, "a") != AttrSource(X, "a")
    assert one.root() is one.base.base


def test_names_read_as_python():
    assert InstanceAttrSource(DictItemSource(X, "k"), "a").name() == "L['x']['k'].a"
    assert TypeAttrSource(TypeSource(GlobalSource("g")), "f").name() == "type(G['g']).f"
    assert CellSource(TupleItemSource(FunctionPartSource(ClosureSource("f", 0), "closure"), 1)).name() == (
        "C['f'].__closure__[1].cell_contents"
    )
    assert ListItemSource(ModuleSource("m.n"), 2).name() == "sys.modules['m.n'][2]"
    assert MethodPartSource(BuiltinSource("f"), "self").name() == "builtins.f.__self__"
    assert ConstSource(Owner()).name() == "<Owner>" and ConstSource(Owner(), "a layer").name() == "a layer"


def test_equal_numbers_of_other_types_are_other_checks():
    checks = [Equals(value) for value in (1, True, 1.0, 0.0, -0.0, float("nan"), (1,), (True,), "1", b"1", [1], [1])]
    distinct = {repr(check.value) for check in checks}
    assert len(set(checks)) == len(distinct) + 1, "two lists are two checks"
    assert Equals(float("nan")) == Equals(float("nan")) and Equals(1) == Equals(1)
    assert DictKeys((1,)) != DictKeys((True,))


def test_a_repeated_guard_is_kept_once_with_its_first_line():
    first = Guard(X, Equals(1), UserLine("a.py", 3), "because")
    guards = GuardSet([first, Guard(X, Equals(1), UserLine("b.py", 9)), Guard(X, Equals(True))])
    assert len(guards) == 2 and next(iter(guards)).line.filename == "a.py"
    assert not guards.add(first) and first in guards
    copy = guards.copy()
    copy.add(Guard(Y, SameAs(X)))
    assert len(guards) == 2 and len(copy) == 3 and copy.sources() == [X, Y]


def test_an_object_is_held_weakly_where_it_can_be():
    owner = Owner()
    held = Held(owner)
    assert held.weak and held.alive and held.get() is owner and held == Held(owner)
    assert Is(owner) == Is(owner) and Is(owner) != Is(Owner()) and hash(Is(owner)) == hash(Is(owner))
    del owner
    assert not held.alive and held.get() is None and held != Held(Owner())
    assert not Held((1, 2)).weak and not Held(None).weak
    assert not Held(Owner().__init__).weak, "each access makes a new bound method"


def test_shared_paths_are_loaded_once():
    base = InstanceAttrSource(X, "a")
    guards = [Guard(InstanceAttrSource(base, name), Equals(1)) for name in "bcd"] + [Guard(base, TypeIs(Owner))]
    instructions, owners, registers = flatten(guards)
    assert [i[0] for i in instructions].count("local") == 1 and len(instructions) == len(owners) == 9
    assert registers == 5
    assert [i[0] for i in instructions][:3] == ["local", "instance_attr", "type_is"]


def test_what_may_run_user_code_comes_last():
    guards = [
        Guard(AttrSource(X, "slow"), Equals(1)),
        Guard(None, Predicate((X, Y), max)),
        Guard(DictItemSource(Y, 5), Equals(2)),
        Guard(Y, Length(1)),
        Guard(X, Equals([1])),
        Guard(X, TypeIs(Owner)),
    ]
    names = [i[0] for i in flatten(guards)[0]]
    assert names[:4] == ["local", "type_is", "local", "len"] or names[:4] == ["local", "len", "local", "type_is"]
    assert names[4:] == ["attr", "equals", "python", "dict_item", "equals", "equals"]


def test_deep_paths_are_walked_without_recursion():
    source = X
    for _ in range(500):
        source = InstanceAttrSource(source, "next")
    instructions, _, registers = flatten([Guard(source, Is(None))])
    assert len(instructions) == 502 and registers == 501


def test_each_source_loads_in_c_what_it_reads_in_python():
    def function(a=[7], *, k=8):  # noqa: B006
        return free

    class Slotted:
        __slots__ = ("s",)

    free = 9
    owner, slotted = Owner(), Slotted()
    owner.attr, owner.items, slotted.s = 1, {"k": [2, (3, 4)]}, 5
    owner.method = types.MethodType(function, owner)
    items = InstanceAttrSource(X, "items")
    row = DictItemSource(items, "k")
    f = GlobalSource("function")
    sources = {
        InstanceAttrSource(X, "attr"): 1,
        DictItemSource(InstanceDictSource(X), "attr"): 1,
        AttrSource(X, "attr"): 1,
        ListItemSource(row, 0): 2,
        TupleItemSource(ListItemSource(row, 1), 1): 4,
        SlotAttrSource(Y, "s"): 5,
        ListItemSource(TupleItemSource(FunctionPartSource(f, "defaults"), 0), 0): 7,
        DictItemSource(FunctionPartSource(f, "kwdefaults"), "k"): 8,
        CellSource(TupleItemSource(FunctionPartSource(f, "closure"), 0)): 9,
        ClosureSource("free", 0): 9,
        InstanceAttrSource(MethodPartSource(InstanceAttrSource(X, "method"), "self"), "attr"): 1,
    }
    things = {
        TypeAttrSource(TypeSource(Y), "s"): Slotted.__dict__["s"],
        BuiltinSource("len"): len,
        ModuleSource("builtins"): builtins,
        InstanceAttrSource(ModuleSource("builtins"), "len"): len,
        MethodPartSource(InstanceAttrSource(X, "method"), "func"): function,
        FunctionPartSource(f, "code"): function.__code__,
    }
    guards = [Guard(source, Equals(value)) for source, value in sources.items()]
    guards += [Guard(source, Is(value)) for source, value in things.items()]
    program, _ = build_program(guards)
    module = {"function": function}
    assert program.check((owner, slotted), module, vars(builtins), function.__closure__) == -1
    wrong = [Guard(source, Equals(value + 1)) for source, value in sources.items()]
    for guard in wrong:
        text = reason([guard], owner, slotted, closure=function.__closure__, **module)
        assert text.startswith(guard.source.name() + " was "), text


def test_reasons_name_the_value_the_change_and_the_users_line():
    line = UserLine("model.py", 12, "forward")
    owner = Owner()
    owner.size = 5
    assert reason([Guard(InstanceAttrSource(X, "size"), Equals(4), line)], owner) == (
        "L['x'].size was 4, now 5 (model.py:12 in forward)"
    )
    assert reason([Guard(InstanceAttrSource(X, "gone"), Equals(4))], owner) == "L['x'].gone does not exist now"
    assert reason([Guard(X, TypeIs(int))], 1.5) == "type(L['x']) was int, now float"
    assert reason([Guard(X, Equals(1))], True) == "type(L['x']) was int, now bool"
    assert reason([Guard(X, Length(2))], [1]) == "len(L['x']) was 2, now 1"
    assert reason([Guard(X, DictKeys(("a", "b")))], {"b": 1, "c": 1}) == (
        "the keys of L['x'] lost ['a'] and gained ['c']"
    )
    assert reason([Guard(X, DictKeys(("a", "b")))], {"b": 1, "a": 1}) == (
        "the order of L['x']'s keys was ['a', 'b'], now ['b', 'a']"
    )
    assert reason([Guard(X, MissingKey("k"))], {"k": 1}) == "L['x'] has the key 'k' now"
    assert reason([Guard(X, MissingInstanceAttr("size"))], owner) == "L['x'].size is now set on the instance, to 5"
    assert reason([Guard(GlobalSource("len"), MissingGlobal())], len=3) == "G['len'] is defined now"
    assert reason([Guard(X, SameAs(Y))], 1, 2) == "L['x'] and L['y'] were one object, now two"
    assert reason([Guard(X, NotSameAs(Y))], 1, 1) == "L['x'] and L['y'] were two objects, now one"
    assert reason([Guard(X, IntRange(2, None))], 1) == "2 <= L['x'] held, now L['x'] is 1"
    assert reason([Guard(X, IsNot(None))], None) == "L['x'] is now None"
    assert reason([Guard(X, Is(None))], 3) == "L['x'] was None, now 3"
    assert reason([Guard(X, Is(owner))], Owner()).startswith("L['x'] was <")
    assert "was true, now it is not" in reason([Guard(None, Predicate((X, Y), lambda a, b: a < b))], 2, 1)


def test_a_failing_repr_does_not_hide_the_reason():
    class Rude:
        def __repr__(self):
            raise ValueError

    text = reason([Guard(X, Equals(1))], Rude())
    assert text.startswith("type(L['x']) was int, now ")
    assert "repr raised ValueError" in reason([Guard(X, IsNot(rude := Rude()))], rude)


def test_a_dead_object_is_the_reason_of_an_invalid_program():
    owner = Owner()
    program, owners = build_program([Guard(X, Is(owner))])
    del owner
    assert describe_failure(owners, program, (1,), {}, vars(builtins), None) == (
        "an object that the compiled code referred to is gone"
    )
