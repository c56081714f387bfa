"""What the emitters assemble to does what they say. Plain functions: every supported Python runs them."""

import sys
import types

from core.bytecode import emit as e
from core.bytecode.assemble import AssemblyError, assemble
from core.bytecode.decode import decode
from core.bytecode.instruction import ExceptionEntry, Instruction, Position, located
from core.bytecode.opcodes import COMPARE_OPERATORS, OPCODE, TABLE


def _template():
    pass


def build(body, arguments=(), cellvars=(), freevars=(), closure=None, table=(), **changes):
    code = assemble(
        [*e.prologue(cellvars, freevars), *body],
        _template.__code__,
        exception_table=table,
        argcount=len(arguments),
        varnames=arguments,
        cellvars=cellvars,
        freevars=freevars,
        **changes,
    )
    return types.FunctionType(code, globals(), None, None, closure)


def collect(*args, **kwargs):
    return args, kwargs


def returning(*parts):
    return [instruction for part in parts for instruction in part] + e.return_value()


def test_call_with_callable_under_its_arguments_needs_no_null():
    for count in range(4):
        values = [e.load_const(i) for i in range(count)]
        f = build(returning(e.load_global("collect"), *values, e.call_function(count)))
        assert f() == (tuple(range(count)), {})
        assert ("PUSH_NULL" in [i.opname for i in decode(f.__code__)]) == (count == 0)


def test_call_with_null_beside_the_callable():
    f = build(returning(e.load_global("collect", True), e.load_const(1), e.call_function(1, with_null=True)))
    g = build(returning(e.callable_with_null(e.load_const(collect)), e.call_function(0, with_null=True)))
    assert f() == ((1,), {}) and g() == ((), {})


def test_call_of_a_bound_method_and_of_a_class_without_null():
    f = build(returning(e.load_const("ab".replace), e.load_const("b"), e.load_const("c"), e.call_function(2)))
    g = build(returning(e.load_const(str), e.load_const(5), e.call_function(1)))
    assert [f() for _ in range(20)] == ["ac"] * 20 and [g() for _ in range(20)] == ["5"] * 20


def test_call_with_keywords_also_when_every_argument_is_one():
    f = build(returning(e.load_global("collect"), e.load_const(1), e.load_const(2), e.call_kw(2, ("k",))))
    g = build(returning(e.load_global("collect"), e.load_const(1), e.call_kw(1, ("k",))))
    h = build(returning(e.load_global("collect", True), e.load_const(1), e.call_kw(1, ("k",), with_null=True)))
    assert f() == ((1,), {"k": 2}) and g() == h() == ((), {"k": 1})


def test_call_with_tuple_and_dict():
    f = build(returning(e.load_global("collect"), e.load_fast("a"), e.call_ex()), ("a",))
    g = build(returning(e.load_global("collect"), e.load_fast("a"), e.load_fast("b"), e.call_ex(True)), ("a", "b"))
    assert f((1, 2)) == ((1, 2), {}) and g((1,), {"k": 2}) == ((1,), {"k": 2})


def test_call_method_reads_the_attribute_after_the_arguments():
    f = build(returning(e.load_fast("a"), e.load_const("b"), e.load_const("cd"), e.call_method("replace", 2)), ("a",))
    assert f("ab") == "acd"


def test_null_leaves_the_stack_through_a_local():
    assert build(returning(e.push_null(), e.pop_null("scratch"), e.load_const(1)))() == 1


def test_jumps_take_the_form_of_their_direction():
    head = e.load_fast("n")
    body = [
        *e.load_const(0),
        *e.store_fast("n"),
        *head,
        *e.load_const(1),
        *e.binary_op("+="),
        *e.store_fast("n"),
        *e.load_fast("n"),
        *e.load_fast("limit"),
        *e.compare_op("<", as_bool=True),
        *e.pop_jump_if_true(head[0], is_bool=True),
        *e.load_fast("n"),
        *e.return_value(),
    ]
    assert build(body, ("limit",))(7) == 7


def test_conditional_jumps_both_ways():
    for emitter, value, taken in (
        (e.pop_jump_if_true, [1], True),
        (e.pop_jump_if_true, [], False),
        (e.pop_jump_if_false, [], True),
        (e.pop_jump_if_none, None, True),
        (e.pop_jump_if_none, 0, False),
        (e.pop_jump_if_not_none, 0, True),
    ):
        there = e.load_const("taken")
        body = [*e.load_fast("a"), *emitter(there[0]), *returning(e.load_const("not")), *returning(there)]
        assert (build(body, ("a",))(value) == "taken") is taken
        back = [*returning(there)]
        body = [*e.load_fast("a"), *emitter(back[0]), *returning(e.load_const("not"))]
        skip = e.nop()
        assert (build([*e.jump(skip[0]), *back, *skip, *body], ("a",))(value) == "taken") is taken


def test_long_jumps_get_prefixes():
    end = e.nop()
    filler = [i for k in range(70000) for i in e.load_const(None) + e.pop_top()]
    body = [*e.load_fast("a"), *e.pop_jump_if_true(end[0]), *filler, *end, *e.load_fast("a"), *e.return_value()]
    f = build(body, ("a",))
    assert f(5) == 5 and f(0) == 0
    assert decode(f.__code__).instructions[-3].opname == "NOP"


def test_cells_and_closures():
    inner = build(returning(e.load_deref("x")), freevars=("x",), closure=(types.CellType(),)).__code__
    outer = build(
        [
            *e.load_const(2),
            *e.store_deref("x"),
            *e.make_closure(inner),
            *e.load_cell("x"),
            *e.load_closure_tuple(("x",)),
            *e.build_tuple(3),
            *e.return_value(),
        ],
        ("x",),
        ("x",),
    )
    function, cell, cells = outer(1)
    assert function() == 2 and cell.cell_contents == 2 and cells == (cell,)


def test_made_functions_have_defaults_annotations_and_closure():
    cell = types.CellType(9)
    code = build(returning(e.load_fast("a"), e.load_deref("x"), e.build_tuple(2)), ("a",), (), ("x",), (cell,)).__code__
    body = returning(
        e.load_const((3,)),
        e.load_const("a"),
        e.load_const(int),
        e.build_tuple(2),
        e.load_closure_tuple(("x",)),
        e.make_function(code, defaults=True, annotations=True, closure=True),
    )
    made = build(body, freevars=("x",), closure=(cell,))()
    assert made() == (3, 9) and made.__annotations__ == {"a": int}


def test_comparisons_have_the_argument_that_the_compiler_gives():
    for operator in COMPARE_OPERATORS:
        code = compile(f"a {operator} b", "x", "eval")
        compiled = next(i for i in decode(code) if i.opname == "COMPARE_OP")
        assert compiled.argval == operator
        function = build(returning(e.load_const(1), e.load_const(2), e.compare_op(operator)))
        ours = next(i for i in decode(function.__code__) if i.opname == "COMPARE_OP")
        assert ours.arg == compiled.arg


def test_operators_give_what_the_source_gives():
    for operator in ("+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^", "/", "+=", "*="):
        f = build(returning(e.load_const(7), e.load_const(2), e.binary_op(operator)))
        assert f() == eval(f"7 {operator.rstrip('=')} 2")
    assert build(returning(e.load_const(1), e.load_const((1, 2)), e.contains_op()))() is True
    assert build(returning(e.load_const(None), e.load_const(None), e.is_op(invert=True)))() is False
    assert build(returning(e.load_const([]), e.unary_not()))() is True
    assert build(returning(e.load_const([0]), e.to_bool()))() is True


def test_formatting_with_conversion_and_width():
    f = build(returning(e.load_fast("a"), e.load_const(">6"), e.format_value("r", True)), ("a",))
    g = build(returning(e.load_fast("a"), e.format_value("s")), ("a",))
    assert f("x") == "   'x'" and g(3) == "3"


def test_unpacking_and_rotation():
    f = build(returning(e.load_fast("a"), e.unpack_ex(1, 1), e.build_tuple(3)), ("a",))
    assert f((1, 2, 3, 4)) == (4, [2, 3], 1)
    values = [e.load_const(c) for c in "abcd"]
    assert build(returning(*values, e.rotate_down(3), e.build_tuple(4)))() == ("a", "d", "b", "c")
    assert build(returning(*values, e.rotate_up(3), e.build_tuple(4)))() == ("a", "c", "d", "b")


def test_exception_entries_catch_and_unbound_locals_raise():
    load = e.load_fast("unset")
    handler = e.pop_top()
    body = [*load, *e.return_value(), *handler, *returning(e.load_const("caught"))]
    assert build(body, table=[ExceptionEntry(load[0], load[0], handler[0], 0)])() == "caught"
    try:
        build([*e.load_fast("unset"), *e.return_value()])()
    except UnboundLocalError:
        pass
    else:
        raise AssertionError("an unset local was read")


def test_equal_constants_of_different_types_stay_apart():
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), "1", b"1", None]
    f = build(returning(*[e.load_const(v) for v in values], e.build_list(len(values))))
    assert [repr(v) for v in f()] == [repr(v) for v in values]


def test_positions_survive_and_reach_tracebacks():
    position = Position(77, 77, 4, 9)
    f = build(located(returning(e.load_const(1), e.load_const(0), e.binary_op("/")), position), filename="user.py")
    try:
        f()
    except ZeroDivisionError as error:
        assert error.__traceback__.tb_next.tb_lineno == 77
    assert {i.position for i in decode(f.__code__) if i.opname == "BINARY_OP"} == {position}


def test_added_locals_do_not_move_cells():
    def original(a, b):
        c = a + b
        return (lambda: (a, c)), b

    decoded = decode(original.__code__)
    extra = [*e.load_const(5), *e.store_fast("added"), *e.load_fast("added"), *e.pop_top()]
    place = next(k for k, i in enumerate(decoded) if i.opname == "RESUME") + 1
    listed = decoded.instructions[:place] + extra + decoded.instructions[place:]
    new = types.FunctionType(assemble(listed, original.__code__), globals())
    get, b = new(1, 2)
    assert get() == (1, 3) and b == 2 and "added" in new.__code__.co_varnames


def test_opcodes_on_two_locals_split_when_a_local_moves_too_far():
    def original(a, b):
        c = b
        return (a, b, c)

    many = tuple(f"v{k}" for k in range(30))
    code = assemble(decode(original.__code__).instructions, original.__code__, varnames=("a", "b", *many, "c"))
    assert types.FunctionType(code, globals())(1, 2) == (1, 2, 2)


def test_detached_instructions_move_to_another_code():
    def original(a):
        return [a, "text", len(a)]

    start = next(k for k, i in enumerate(decode(original.__code__)) if i.opname == "RESUME")
    moved = [i.detached() for i in decode(original.__code__).instructions[start + 1 :]]
    assert build(moved, ("unused", "a"), names=("other",), consts=(None, 1))(0, "ab") == ["ab", "text", 2]


def test_what_cannot_be_assembled_is_refused():
    stray = e.nop()[0]
    wrong = [
        [*e.jump(stray), *returning(e.load_const(1))],
        [Instruction("NO_SUCH_OPCODE"), *returning(e.load_const(1))],
        [*e.load_deref("nowhere"), *e.return_value()],
        [stray, stray, *returning(e.load_const(1))],
        [Instruction("JUMP"), *returning(e.load_const(1))],
    ]
    for body in wrong:
        try:
            build(body)
        except AssemblyError:
            continue
        raise AssertionError(f"{body} was assembled")


def test_decoding_is_cached_until_the_code_dies():
    code = compile("x + 1", "x", "eval")
    first = decode(code)
    assert decode(code) is first
    equal = compile("x + 1", "x", "eval")
    assert equal == code and decode(equal) is not first
    from core.bytecode.decode import _cache

    size = len(_cache)
    del code, equal
    assert len(_cache) == size - 2


def test_decoded_code_finds_instructions_by_offset_and_handler():
    def guarded(a):
        try:
            return a.b.c
        except AttributeError:
            return None

    decoded = decode(guarded.__code__)
    load = next(i for i in decoded if i.argval == "c")
    entry = decoded.handler_of(load)
    assert entry is not None and entry.target.opname == "PUSH_EXC_INFO" and entry.depth == 0
    assert (
        decoded.at(load.offset + 2) is load
        and decoded.next_of(load) is decoded.instructions[decoded.index_of(load) + 1]
    )
    assert load.user_line("f.py", "guarded").line == guarded.__code__.co_firstlineno + 2
    try:
        decoded.index_of(decode((lambda: 1).__code__).instructions[0])
    except ValueError:
        pass
    else:
        raise AssertionError("an instruction of another code was found")


def test_tables_agree_with_the_interpreter():
    import opcode

    entries = opcode._inline_cache_entries
    by_name = entries if isinstance(entries, dict) else {opcode.opname[i]: n for i, n in enumerate(entries)}
    known = {name: count for name, count in by_name.items() if count and name in OPCODE}
    assert known == TABLE.caches and TABLE.version == sys.version_info[:2]
