"""Guard programs keep nothing alive that they hold weakly, leak nothing, and survive user code that attacks them."""

import gc
import sys
import threading
import weakref

from guard_frames import Frame, program

from core import _C

EVERY_INTERPRETER = True


class Owner:
    pass


def test_a_weakly_held_object_may_die_and_the_program_says_so_once():
    owner, calls = Owner(), []
    checked = program(("local", 0, 0), ("is", 0, owner, True), ("is_not", 0, owner, True))
    checked.on_invalid = lambda: calls.append(1)
    assert Frame(owner).miss(checked) == 2 and not checked.invalid
    gone = weakref.ref(owner)
    del owner
    assert gone() is None and checked.invalid and calls == [1]
    assert checked.on_invalid is None
    assert Frame(Owner()).miss(checked) >= 0


def test_an_object_without_weak_references_is_held_strongly():
    marker = (1, object())
    checked = program(("local", 0, 0), ("is", 0, marker, True))
    frame = Frame(marker)
    identity = id(marker)
    del marker
    assert frame.hits(checked) and id(frame.args[0]) == identity and not checked.invalid


def test_a_dead_program_leaves_no_callback_behind():
    owner, calls = Owner(), []
    checked = program(("const", 0, owner, True))
    checked.on_invalid = lambda: calls.append(1)
    del checked
    assert weakref.getweakrefcount(owner) == 0
    del owner
    assert calls == []


def test_a_program_in_a_cycle_is_collected():
    def function():
        pass

    checked = program(("const", 0, function, False))
    function.checked = checked
    gone = weakref.ref(checked)
    del checked, function
    gc.collect()
    assert gone() is None


def test_arming_keeps_no_user_object_alive():
    owner = Owner()
    owner.child = Owner()
    owner.child.value = 1
    checked = program(
        ("local", 0, 0), ("instance_attr", 1, 0, "child"), ("instance_attr", 2, 1, "value"), ("equals", 2, 1)
    )
    assert Frame(owner).hits(checked)
    gone = weakref.ref(owner), weakref.ref(owner.child)
    del owner
    assert [ref() for ref in gone] == [None, None]
    assert Frame(Owner()).miss(checked) == 1


def test_a_million_evaluations_change_no_reference_count():
    owner = Owner()
    owner.child = Owner()
    owner.child.size = 10**6
    owner.names = {"a": [1, 2], "b": (3, "four")}

    def ordered(a, b):
        return a < b

    checked = _C.GuardProgram(
        [
            ("local", 0, 0),
            ("type_is", 0, Owner),
            ("is", 0, owner, True),
            ("instance_attr", 1, 0, "child"),
            ("instance_attr", 2, 1, "size"),
            ("equals", 2, 10**6),
            ("instance_attr", 3, 0, "names"),
            ("dict_keys", 3, ("a", "b")),
            ("dict_item", 4, 3, "a"),
            ("len", 4, 2),
            ("list_item", 5, 4, 0),
            ("dict_item", 6, 3, "b"),
            ("equals", 6, (3, "four")),
            ("local", 7, 1),
            ("int_range", 7, 0, 9),
            ("shape", (("int", 7), ("const", 3), ("eq",))),
            ("attr", 8, 1, "size"),
            ("python", (5, 7), ordered),
        ],
        16,
    )
    watched = [owner, owner.child, owner.child.size, owner.names, owner.names["a"], owner.names["b"], ordered, checked]

    def counts():
        return [sys.getrefcount(value) for value in watched]

    hit, miss = Frame(owner, 3), Frame(owner, 4)
    assert hit.hits(checked) and miss.miss(checked) == 15
    arguments = [(frame.args, frame.globals, frame.builtins, frame.closure) for frame in (hit, miss)]
    for frame in arguments:
        checked._repeat(1000, *frame)
    gc.collect()
    before, blocks = counts(), sys.getallocatedblocks()
    assert checked._repeat(500_000, *arguments[0]) == 500_000
    assert checked._repeat(500_000, *arguments[1]) == 0
    for step in range(2_000):
        owner.step = step
        owner.child.step = step
        assert checked._repeat(1, *arguments[0]) == 1
    del owner.step, owner.child.step
    assert counts() == before
    assert abs(sys.getallocatedblocks() - blocks) < 100


def test_making_and_dropping_programs_leaks_nothing():
    owner = Owner()
    owner.value = {"k": 1}

    def once():
        checked = program(
            ("local", 0, 0),
            ("is", 0, owner, True),
            ("instance_attr", 1, 0, "value"),
            ("dict_item", 2, 1, "k"),
            ("equals", 2, 1),
            ("shape", (("const", 1),)),
            ("python", (0, 1), max),
        )
        Frame(owner).miss(checked)
        try:
            program(("local", 0, 0), ("is", 0, owner, True), ("len", 9, 1))
        except ValueError:
            pass

    for _ in range(50):
        once()
    gc.collect()
    count, blocks = sys.getrefcount(owner), sys.getallocatedblocks()
    for _ in range(500):
        once()
    gc.collect()
    assert sys.getrefcount(owner) == count
    assert abs(sys.getallocatedblocks() - blocks) < 100


def test_user_code_of_a_guard_may_evaluate_the_same_program_again():
    depth = []

    def again(value):
        if len(depth) < 5:
            depth.append(1)
            return frame.miss(checked) == -1
        return True

    checked = program(("local", 0, 0), ("len", 0, 1), ("python", (0,), again))
    frame = Frame([1])
    assert frame.miss(checked) == -1 and len(depth) == 5


def test_user_code_of_a_guard_may_drop_what_the_guard_reads():
    class Evil:
        def __eq__(self, other):
            holder.clear()
            gc.collect()
            return True

        __hash__ = None

    holder = {"a": [Evil()], "b": [object()]}
    checked = program(
        ("local", 0, 0),
        ("dict_item", 1, 0, "a"),
        ("dict_item", 2, 0, "b"),
        ("list_item", 3, 1, 0),
        ("list_item", 4, 2, 0),
        ("equals", 3, Evil()),
        ("len", 1, 1),
        ("len", 2, 1),
        ("same", 4, 4),
    )
    assert Frame(holder).miss(checked) == -1
    assert holder == {}


def test_an_interrupt_inside_a_guard_is_not_lost():
    def interrupted(value):
        raise KeyboardInterrupt

    checked = program(("local", 0, 0), ("python", (0,), interrupted))
    try:
        result = Frame(1).miss(checked)
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        return
    raise AssertionError(f"the interrupt is gone, the guard said {result}")


def test_threads_evaluate_one_program_at_once():
    sys.setswitchinterval(1e-5)
    owner = Owner()
    owner.value = 1
    checked = program(
        ("local", 0, 0),
        ("instance_attr", 1, 0, "value"),
        ("equals", 1, 1),
        ("local", 2, 1),
        ("python", (2,), lambda wanted: wanted),
    )
    wrong = []

    def work(wanted):
        frame = Frame(owner, wanted)
        for step in range(5_000):
            owner.step = step
            if (frame.miss(checked) == -1) != wanted:
                wrong.append(step)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
