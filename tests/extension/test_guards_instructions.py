"""Each guard instruction holds, and misses after each change that it is there to see, at first and when armed."""

import collections
import enum
import math
import sys
import types

from guard_frames import Frame, program

from core import _C

EVERY_INTERPRETER = True


class Plain:
    pass


class Slotted:
    __slots__ = ("kept", "unset")


def raises(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def sees(make, instructions, change, at, undo=None):
    """A program hits, misses at instruction `at` after `change(frame)`, and hits again after `undo(frame)`."""
    frame = make()
    checked = program(*instructions(frame))
    assert frame.hits(checked)
    change(frame)
    assert frame.miss(checked) == at, (frame.miss(checked), instructions(frame))
    assert frame.miss(checked) == at
    assert frame.miss(program(*instructions(make()))) in (-1, at)
    if undo is not None:
        undo(frame)
        assert frame.hits(checked)


def test_an_argument_is_read_from_its_slot():
    frame = Frame(1, "two")
    checked = program(("local", 0, 1), ("equals", 0, "two"))
    assert frame.hits(checked)
    frame.args = (1, "three")
    assert frame.miss(checked) == 1
    raises(ValueError, Frame(1).miss, checked)


def test_a_global_is_found_before_the_builtin_of_its_name():
    def instructions(frame):
        return [("global", 0, "len"), ("is", 0, len, True)]

    sees(Frame, instructions, lambda f: f.globals.update(len=max), 1, lambda f: f.globals.pop("len"))


def test_a_global_alone_does_not_fall_back_to_builtins():
    frame = Frame(x=1)
    assert frame.miss(program(("global_only", 0, "len"))) == 0
    checked = program(("global_only", 0, "x"), ("equals", 0, 1))
    assert frame.hits(checked)
    del frame.globals["x"]
    assert frame.miss(checked) == 0


def test_a_shadowed_builtin_misses_by_its_missing_global():
    def instructions(frame):
        return [("missing_global", "len"), ("builtin", 0, "len"), ("is", 0, len, True)]

    sees(Frame, instructions, lambda f: f.globals.update(len=max), 0, lambda f: f.globals.pop("len"))


def test_a_replaced_builtin_misses():
    def change(frame):
        frame.builtins = {**frame.builtins, "len": max}

    sees(Frame, lambda f: [("builtin", 0, "len"), ("is", 0, len, True)], change, 1)


def test_a_closure_cell_is_read_anew_each_time():
    cell = types.CellType(5)
    checked = program(("closure", 0, 0), ("equals", 0, 5))
    frame = Frame(closure=(cell,))
    assert frame.hits(checked)
    cell.cell_contents = 6
    assert frame.miss(checked) == 1
    cell.cell_contents = 5
    assert frame.hits(checked)
    del cell.cell_contents
    assert frame.miss(checked) == 0
    assert Frame(closure=(types.CellType(5),)).hits(checked)
    assert Frame().miss(checked) == 0


def test_an_instance_attribute_is_read_past_descriptors():
    class WithProperty:
        @property
        def x(self):
            raise AssertionError("user code ran")

        def __getattr__(self, name):
            raise AssertionError("user code ran")

    value = WithProperty()
    value.__dict__["x"] = 3
    checked = program(("local", 0, 0), ("instance_attr", 1, 0, "x"), ("equals", 1, 3))
    frame = Frame(value)
    assert frame.hits(checked)
    value.__dict__["x"] = 4
    assert frame.miss(checked) == 2
    del value.__dict__["x"]
    assert frame.miss(checked) == 1
    assert Frame(3).miss(checked) == 1 and Frame(Slotted()).miss(checked) == 1


def test_a_deleted_attribute_misses():
    value = Plain()
    value.x = [1]
    value.y = 0
    checked = program(("local", 0, 0), ("instance_attr", 1, 0, "x"), ("len", 1, 1))
    frame = Frame(value)
    assert frame.hits(checked)
    del value.x
    assert frame.miss(checked) == 1
    value.x = [2]
    assert frame.hits(checked)


def test_an_instance_dict_is_the_one_of_now():
    value = Plain()
    value.x = 1
    checked = program(("local", 0, 0), ("instance_dict", 1, 0), ("dict_item", 2, 1, "x"), ("equals", 2, 1))
    frame = Frame(value)
    assert frame.hits(checked)
    kept = value.__dict__
    value.__dict__ = {"x": 2}
    assert frame.miss(checked) == 3
    value.__dict__ = kept
    assert frame.hits(checked)
    assert Frame(Slotted()).miss(checked) == 1


def test_a_changed_class_misses_by_type():
    class Other:
        pass

    value = Plain()
    value.x = 1
    checked = program(("local", 0, 0), ("type_is", 0, Plain), ("instance_attr", 1, 0, "x"), ("equals", 1, 1))
    frame = Frame(value)
    assert frame.hits(checked)
    value.__class__ = Other
    assert frame.miss(checked) == 1
    value.__class__ = Plain
    assert frame.hits(checked)


def test_a_subclass_is_not_the_type():
    checked = program(("local", 0, 0), ("type_is", 0, int))
    assert Frame(1).hits(checked) and Frame(True).miss(checked) == 1


def test_a_type_attribute_is_the_raw_one_along_the_mro():
    class Base:
        def method(self):
            pass

    class Derived(Base):
        pass

    def other(self):
        pass

    original = Base.__dict__["method"]
    frame = Frame(Derived())
    checked = program(
        ("local", 0, 0),
        ("type", 1, 0),
        ("is", 1, Derived, True),
        ("type_attr", 2, 1, "method"),
        ("is", 2, original, True),
    )
    assert frame.hits(checked)
    Base.unrelated = 1
    assert frame.hits(checked)
    Derived.method = other
    assert frame.miss(checked) == 4
    del Derived.method
    assert frame.hits(checked)
    Base.method = other
    assert frame.miss(checked) == 4
    del Base.method
    assert frame.miss(checked) == 3


def test_changed_bases_change_type_attributes():
    class One:
        kind = "one"

    class Two:
        kind = "two"

    class Both(One):
        pass

    checked = program(("const", 0, Both, False), ("type_attr", 1, 0, "kind"), ("equals", 1, "one"))
    frame = Frame()
    assert frame.hits(checked)
    Both.__bases__ = (Two,)
    assert frame.miss(checked) == 2


def test_an_unchanged_type_keeps_its_version():
    class Watched:
        x = 1

    checked = program(("type_version", Watched))
    frame = Frame()
    assert frame.hits(checked)
    Watched.x = 2
    assert frame.miss(checked) == 0


def test_a_slot_is_read_without_its_descriptor():
    value = Slotted()
    value.kept = 3
    checked = program(("local", 0, 0), ("slot_attr", 1, 0, "kept"), ("equals", 1, 3))
    frame = Frame(value)
    assert frame.hits(checked)
    value.kept = 4
    assert frame.miss(checked) == 2
    del value.kept
    assert frame.miss(checked) == 1
    assert frame.miss(program(("local", 0, 0), ("slot_attr", 1, 0, "unset"))) == 1
    assert Frame(Plain()).miss(checked) == 1


def test_dict_items_miss_on_change_deletion_and_clear():
    def change_all(frame):
        frame.args[0].clear()

    def instructions(frame):
        return [("local", 0, 0), ("dict_item", 1, 0, "k"), ("equals", 1, 1)]

    def make():
        return Frame({"k": 1, "other": 2})

    sees(make, instructions, lambda f: f.args[0].update(k=2), 2, lambda f: f.args[0].update(k=1))
    sees(make, instructions, lambda f: f.args[0].pop("k"), 1, lambda f: f.args[0].update(k=1))
    sees(make, instructions, change_all, 1)
    assert Frame([1]).miss(program(*instructions(None))) == 1


def test_dicts_with_keys_of_other_types_are_looked_up_by_equality():
    checked = program(("local", 0, 0), ("dict_item", 1, 0, 5), ("equals", 1, "five"), ("missing_key", 0, (1, 2)))
    assert Frame({5: "five", "s": 1}).hits(checked)
    assert Frame({5.0: "five"}).hits(checked)
    assert Frame({5: "six"}).miss(checked) == 2
    assert Frame({5: "five", (1, 2): 0}).miss(checked) == 3


def test_a_str_subclass_among_the_keys_may_run_its_equality_safely():
    class Key(str):
        def __hash__(self):
            return str.__hash__(self)

        def __eq__(self, other):
            frame.globals.clear()
            return False

    frame = Frame({Key("k"): 1, "z": 1}, x=1)
    checked = program(("global_only", 0, "x"), ("local", 1, 0), ("dict_item", 2, 1, "k"), ("equals", 0, 1))
    assert frame.miss(checked) == 2


def test_a_dict_subclass_is_read_past_its_methods():
    class Loud(dict):
        def __getitem__(self, key):
            raise AssertionError("user code ran")

        def __len__(self):
            raise AssertionError("user code ran")

    checked = program(("local", 0, 0), ("dict_item", 1, 0, "k"), ("equals", 1, 1), ("len", 0, 1))
    assert Frame(Loud(k=1)).hits(checked)


def test_list_and_tuple_items_miss_when_another_stands_there():
    items = [1, 2, 3]
    checked = program(("local", 0, 0), ("list_item", 1, 0, 2), ("equals", 1, 3))
    frame = Frame(items)
    assert frame.hits(checked)
    items[2] = 4
    assert frame.miss(checked) == 2
    items.pop()
    assert frame.miss(checked) == 1
    checked = program(("local", 0, 0), ("tuple_item", 1, 0, 1), ("equals", 1, "b"))
    assert Frame(("a", "b")).hits(checked)
    assert Frame(("a",)).miss(checked) == 1 and Frame(["a", "b"]).miss(checked) == 1


def test_parts_of_functions_and_methods():
    def function(a, b=1, *, c=2):
        return cell_value

    def other(a, b=1, *, c=2):
        return cell_value + 1

    cell_value = 3
    checked = program(
        ("local", 0, 0),
        ("function_code", 1, 0),
        ("is", 1, function.__code__, True),
        ("function_defaults", 2, 0),
        ("equals", 2, (1,)),
        ("function_kwdefaults", 3, 0),
        ("equals", 3, {"c": 2}),
        ("function_closure", 4, 0),
        ("tuple_item", 5, 4, 0),
        ("cell", 6, 5),
        ("equals", 6, 3),
    )
    frame = Frame(function)
    assert frame.hits(checked)
    cell_value = 4
    assert frame.miss(checked) == 10
    cell_value = 3
    function.__defaults__ = (2,)
    assert frame.miss(checked) == 4
    function.__defaults__ = None
    assert frame.miss(checked) == 4
    function.__defaults__ = (1,)
    function.__kwdefaults__["c"] = 3
    assert frame.miss(checked) == 6
    function.__kwdefaults__["c"] = 2
    assert frame.hits(checked)
    function.__code__ = other.__code__
    assert frame.miss(checked) == 2
    assert Frame(len).miss(checked) == 1

    value = Plain()
    method = types.MethodType(function, value)
    parts = program(
        ("local", 0, 0), ("method_self", 1, 0), ("is", 1, value, True), ("method_func", 2, 0), ("is", 2, function, True)
    )
    assert Frame(method).hits(parts)
    assert Frame(types.MethodType(other, value)).miss(parts) == 4
    assert Frame(types.MethodType(function, Plain())).miss(parts) == 2
    assert Frame(function).miss(parts) == 1


def test_an_imported_module_is_found_in_sys_modules():
    module = types.ModuleType("guarded_module")
    sys.modules["guarded_module"] = module
    checked = program(("module", 0, "guarded_module"), ("is", 0, module, True))
    frame = Frame()
    try:
        assert frame.hits(checked)
        sys.modules["guarded_module"] = types.ModuleType("guarded_module")
        assert frame.miss(checked) == 1
    finally:
        del sys.modules["guarded_module"]
    assert frame.miss(checked) == 0


def test_equality_wants_the_same_type_and_value():
    class Level(enum.IntEnum):
        LOW = 5

    def equal(constant, value):
        return Frame(value).hits(program(("local", 0, 0), ("equals", 0, constant)))

    for value in (
        5,
        5.0,
        True,
        "5",
        b"5",
        None,
        (5, "a", (1.5, None)),
        5j,
        10**30,
        slice(1, None, 2),
        [5, [6]],
        {"a": 5},
    ):
        assert equal(value, value)
    for one, other in [
        (5, 5.0),
        (1, True),
        (0.0, -0.0),
        (5, Level.LOW),
        ("a", "b"),
        ("a", b"a"),
        ((1, 2), (1, 2.0)),
        ((1, 2), (1, 2, 3)),
        ((0.0,), (-0.0,)),
        (10**30, 10**30 + 1),
        (complex(0.0, 1), complex(-0.0, 1)),
        (slice(1, 2), slice(1, 3)),
        ([1], [True]),
        ([1], [1, 2]),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, 2), [1, 2]),
    ]:
        assert not equal(one, other) and not equal(other, one), (one, other)
    assert equal(math.nan, float("nan")) and equal((math.nan,), (float("nan"),))
    assert equal("a" * 50, "a" * 25 + "a" * 25) and equal("é", "\u00e9") and not equal("é", "e")


def test_an_error_in_a_users_equality_is_a_miss_and_leaves_no_exception():
    class Angry:
        def __eq__(self, other):
            raise ZeroDivisionError

        __hash__ = None

    one, other = Angry(), Angry()
    assert Frame(one).miss(program(("local", 0, 0), ("equals", 0, other))) == 1


def test_lengths_of_builtin_containers():
    for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset((1, 2)), "ab", b"ab", range(2), bytearray(b"ab")):
        frame = Frame(value)
        assert frame.hits(program(("local", 0, 0), ("len", 0, 2)))
        assert frame.miss(program(("local", 0, 0), ("len", 0, 3))) == 1
    assert Frame(5).miss(program(("local", 0, 0), ("len", 0, 1))) == 1
    held = {"l": [1], "d": {}, "s": {1}}
    checked = program(
        ("local", 0, 0),
        ("dict_item", 1, 0, "l"),
        ("len", 1, 1),
        ("dict_item", 2, 0, "d"),
        ("len", 2, 0),
        ("dict_item", 3, 0, "s"),
        ("len", 3, 1),
    )
    frame = Frame(held)
    for name, at, add, remove in [("l", 2, "append", "pop"), ("s", 6, "add", "remove")]:
        assert frame.hits(checked)
        getattr(held[name], add)(9)
        assert frame.miss(checked) == at
        getattr(held[name], remove)(*([9] if name == "s" else []))
    held["d"]["new"] = 1
    assert frame.miss(checked) == 4
    held["d"].clear()
    assert frame.hits(checked)


def test_dict_keys_count_in_their_order():
    checked = program(("local", 0, 0), ("dict_keys", 0, ("a", "b")))
    value = {"a": 1, "b": 2}
    frame = Frame(value)
    assert frame.hits(checked)
    value["a"] = 5
    assert frame.hits(checked)
    value["a"] = value.pop("a")
    assert frame.miss(checked) == 1
    assert Frame({"a": 1}).miss(checked) == 1 and Frame({"a": 1, "b": 2, "c": 3}).miss(checked) == 1
    keys = (1, "a", (2, 3), int)
    assert Frame(dict.fromkeys(keys)).hits(program(("local", 0, 0), ("dict_keys", 0, keys)))
    assert Frame(dict.fromkeys((True, "a", (2, 3), int))).miss(program(("local", 0, 0), ("dict_keys", 0, keys))) == 1


def test_moving_a_key_of_an_ordered_dict_is_seen():
    value = collections.OrderedDict(a=1, b=2)
    checked = program(("local", 0, 0), ("dict_keys", 0, ("a", "b")))
    frame = Frame(value)
    assert frame.hits(checked)
    value.move_to_end("a")
    assert frame.miss(checked) == 1
    value.move_to_end("b")
    assert frame.hits(checked)


def test_keys_and_attributes_that_must_be_missing():
    value = Plain()
    value.d = {}
    checked = program(
        ("local", 0, 0),
        ("missing_instance_attr", 0, "forward"),
        ("instance_attr", 1, 0, "d"),
        ("missing_key", 1, "k"),
    )
    frame = Frame(value)
    assert frame.hits(checked)
    value.d["other"] = 1
    assert frame.hits(checked)
    value.d["k"] = 1
    assert frame.miss(checked) == 3
    del value.d["k"]
    value.forward = 1
    assert frame.miss(checked) == 1
    del value.forward
    assert frame.hits(checked)
    assert Frame(Slotted()).miss(checked) == 2


def test_identity_and_its_absence_between_values():
    one, two = Plain(), Plain()
    same = program(("local", 0, 0), ("local", 1, 1), ("same", 0, 1))
    other = program(("local", 0, 0), ("local", 1, 1), ("not_same", 0, 1))
    assert Frame(one, one).hits(same) and Frame(one, two).miss(same) == 2
    assert Frame(one, two).hits(other) and Frame(one, one).miss(other) == 2
    different = program(("local", 0, 0), ("is_not", 0, one, True))
    assert Frame(two).hits(different) and Frame(one).miss(different) == 1


def test_ranges_are_of_exact_ints():
    checked = program(("local", 0, 0), ("int_range", 0, 2, 10**30))
    assert Frame(2).hits(checked) and Frame(10**30).hits(checked)
    assert Frame(1).miss(checked) == 1 and Frame(10**30 + 1).miss(checked) == 1
    assert Frame(True).miss(checked) == 1 and Frame(5.0).miss(checked) == 1
    assert Frame(-(10**40)).hits(program(("local", 0, 0), ("int_range", 0, None, 3)))
    assert Frame(10**40).hits(program(("local", 0, 0), ("int_range", 0, 3, None)))


def test_relations_between_numbers_are_exact_or_miss():
    def holds(tokens, *args):
        loads = [("local", i, i) for i in range(len(args))]
        return Frame(*args).hits(program(*loads, ("shape", tokens)))

    x, y = ("int", 0), ("int", 1)
    assert holds((x, ("const", 2), ("mul",), y, ("eq",)), 3, 6)
    assert not holds((x, ("const", 2), ("mul",), y, ("eq",)), 3, 7)
    assert holds((x, y, ("floordiv",), ("const", -2), ("eq",)), -3, 2)
    assert holds((x, y, ("mod",), ("const", 1), ("eq",)), -3, 2)
    assert not holds((x, y, ("mod",), ("const", 0), ("ge",)), 1, 0)
    assert not holds((x, ("const", 1), ("add",), x, ("ne",)), 2**63 - 1), "overflow"
    assert not holds((x, x, ("mul",), ("const", 0), ("ge",)), 2**40), "overflow"
    assert not holds((x, x, ("eq",)), 2**70), "beyond 64 bits"
    assert not holds((x, ("neg",), ("const", 0), ("ne",)), -(2**63)), "overflow"
    assert holds((x, ("const", 0.5), ("lt",)), 0) and not holds((x, ("const", 0.5), ("lt",)), 1)
    assert holds((x, y, ("lt",)), 2**53, 2.0**53 + 2) and not holds((x, y, ("eq",)), 2**53 + 1, 2.0**53)
    assert not holds((x, x, ("eq",)), math.nan) and holds((x, x, ("ne",)), math.nan)
    assert holds((x, y, ("min",), ("const", 3), ("eq",), x, y, ("max",), ("const", 4), ("eq",), ("and",)), 3, 4)
    assert holds((x, y, ("pow",), ("const", 81), ("eq",)), 3, 4)
    assert not holds((x, ("abs",), ("const", 3), ("ne",), ("not",), ("not",)), -3)
    assert not holds((x, x, ("eq",)), "text")


def test_a_predicate_is_called_with_the_values_and_its_errors_miss():
    seen = []

    def ordered(a, b):
        seen.append((a, b))
        return a < b

    checked = program(("local", 0, 0), ("local", 1, 1), ("python", (0, 1), ordered))
    assert Frame(1, 2).miss(checked) == -1 and seen == [(1, 2)]
    assert Frame(2, 1).miss(checked) == 2
    assert Frame("a", 1).miss(checked) == 2
    assert Frame(1, 2).miss(checked) == -1


def test_a_generic_attribute_runs_the_full_protocol_and_its_errors_miss():
    class Dynamic:
        def __getattr__(self, name):
            if name == "good":
                return [1, 2]
            raise AttributeError(name)

    checked = program(("local", 0, 0), ("attr", 1, 0, "good"), ("len", 1, 2))
    assert Frame(Dynamic()).hits(checked)
    assert Frame(Plain()).miss(checked) == 1


def test_malformed_programs_are_refused_with_the_reason():
    assert "unknown guard instruction" in raises(ValueError, program, ("nonsense", 0))
    assert "takes 2 operands" in raises(ValueError, program, ("local", 0))
    assert "before it is loaded" in raises(ValueError, program, ("len", 0, 1))
    assert "out of range" in raises(ValueError, _C.GuardProgram, [("local", 9, 0)], 2)
    assert "is negative" in raises(ValueError, program, ("local", 0, -1))
    assert "not a name" in raises(TypeError, program, ("global", 0, 5))
    assert "unhashable" in raises(TypeError, program, ("local", 0, 0), ("dict_item", 1, 0, []))
    assert "leaves 2 values" in raises(ValueError, program, ("shape", (("const", 1), ("const", 2))))
    assert "stack depth" in raises(ValueError, program, ("shape", (("add",),)))
    assert "before it is loaded" in raises(ValueError, program, ("shape", (("int", 3),)))
    assert "not a snapshot" in raises(TypeError, program, ("global_state", None))
    assert "calibrate" in raises(RuntimeError, program, ("local", 0, 0), ("tensor", 0, ()))
    assert "tuple" in raises(TypeError, program, 5)
    raises(TypeError, _C.GuardProgram([], 0).__init__, [], 0)


def test_an_empty_program_always_hits():
    assert Frame().hits(program())
