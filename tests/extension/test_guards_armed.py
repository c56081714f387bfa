"""The armed part of guard programs: version tags (3.11) and watchers (3.12+) never hide a change, and unrelated
changes cost no full evaluation."""

import random
import sys

from guard_frames import Frame, program

EVERY_INTERPRETER = True
WATCHERS = sys.version_info >= (3, 12)


class Module:
    """Shaped like an nn.Module: plain dicts hang below the instance's own."""

    def __init__(self, **children):
        self.training = True
        self.step = 0
        self._modules = dict(children)
        self._parameters = {"weight": object()}


def tree(count=20):
    return Module(**{f"m{i}": Module() for i in range(count)})


def tree_program(root):
    """Guards of a module tree; returns the program."""
    instructions = [("local", 0, 0), ("type_is", 0, Module), ("instance_attr", 1, 0, "_modules")]
    instructions += [("dict_keys", 1, tuple(root._modules))]
    register = 2
    for name, child in root._modules.items():
        instructions += [
            ("dict_item", register, 1, name),
            ("is", register, child, True),
            ("type_is", register, Module),
            ("missing_instance_attr", register, "forward"),
            ("instance_attr", register + 1, register, "training"),
            ("equals", register + 1, True),
            ("instance_attr", register + 2, register, "_parameters"),
            ("len", register + 2, 1),
            ("dict_item", register + 3, register + 2, "weight"),
            ("is", register + 3, child._parameters["weight"], False),
        ]
        register += 4
    from core import _C

    return _C.GuardProgram(instructions, register)


def learnings(checked, act):
    """How often the program learned anew while `act` ran: each learning lowers the credit by 4, each hit adds 1."""
    before = checked._armed()["credit"]
    act()
    return before - checked._armed()["credit"]


def test_the_first_hit_arms_and_nothing_of_the_tree_is_left_to_evaluate():
    root = tree()
    checked, frame = tree_program(root), Frame(root)
    assert checked._armed() is None
    assert frame.hits(checked)
    armed = checked._armed()
    assert armed["ready"] and armed["residual"] == 0
    assert armed["dicts"] == 2 + 2 * 20
    if WATCHERS:
        assert armed["watched"] >= 21
    else:
        assert armed["watched"] == 0 and armed["records"] <= 4 + 5 * 20


def test_each_change_in_an_armed_tree_is_seen():
    root = tree(3)
    checked, frame = tree_program(root), Frame(root)
    child = root._modules["m1"]
    weight = child._parameters["weight"]

    def extra(parent):
        parent._modules["new"] = Module()

    changes = [
        (lambda: setattr(child, "training", False), lambda: setattr(child, "training", True)),
        (lambda: setattr(child, "forward", 1), lambda: delattr(child, "forward")),
        (lambda: delattr(child, "training"), lambda: setattr(child, "training", True)),
        (lambda: child._parameters.update(weight=object()), lambda: child._parameters.update(weight=weight)),
        (lambda: child._parameters.clear(), lambda: child._parameters.update(weight=weight)),
        (lambda: child._parameters.update(bias=1), lambda: child._parameters.pop("bias")),
        (lambda: root._modules.update(m1=Module()), lambda: root._modules.update(m1=child)),
        (lambda: extra(root), lambda: root._modules.pop("new")),
        (lambda: setattr(child, "_parameters", {}), lambda: setattr(child, "_parameters", {"weight": weight})),
        (lambda: child.__dict__.update(training=0), lambda: child.__dict__.update(training=True)),
        (lambda: child.__dict__.pop("training"), lambda: child.__dict__.setdefault("training", True)),
    ]
    for number, (change, undo) in enumerate(changes * 3):
        assert frame.hits(checked), number
        change()
        assert frame.miss(checked) >= 0, number
        assert frame.miss(checked) >= 0, number
        undo()
    assert frame.hits(checked)


def test_a_new_dict_of_an_instance_is_seen_even_while_the_old_one_lives():
    root = tree(2)
    checked, frame = tree_program(root), Frame(root)
    child = root._modules["m0"]
    assert frame.hits(checked)
    kept = child.__dict__
    child.__dict__ = {**kept, "training": False}
    assert frame.miss(checked) >= 0
    child.__dict__ = dict(kept)
    assert frame.hits(checked)
    child.__dict__["training"] = False
    assert frame.miss(checked) >= 0


def test_a_new_class_of_an_instance_is_seen():
    class Other(Module):
        pass

    root = tree(2)
    checked, frame = tree_program(root), Frame(root)
    assert frame.hits(checked)
    root._modules["m1"].__class__ = Other
    assert frame.miss(checked) >= 0
    root._modules["m1"].__class__ = Module
    assert frame.hits(checked)


def test_unrelated_keys_keep_the_hit_without_a_full_evaluation():
    root = tree()
    checked, frame = tree_program(root), Frame(root)
    assert frame.hits(checked)

    def act():
        for step in range(100):
            root.step = step
            root._modules["m3"].step = step
            root._modules["m4"].extra = step
            assert frame.miss(checked) == -1
            frame.globals["loop_variable"] = step

    assert learnings(checked, act) <= 0


def test_a_rebound_equal_value_keeps_the_hit_and_stops_costing_after_a_few_calls():
    value = Module()
    value.size = 10**6
    checked = program(("local", 0, 0), ("instance_attr", 1, 0, "size"), ("equals", 1, 10**6))
    frame = Frame(value)
    assert frame.hits(checked)

    def act():
        for _ in range(50):
            value.size = int("1000000")
            assert frame.miss(checked) == -1

    assert learnings(checked, act) < 20
    assert checked._armed()["residual"] >= 2
    value.size = 5
    assert frame.miss(checked) == 2


def test_a_value_at_the_address_of_a_dead_one_is_not_taken_for_it():
    value = Module()
    checked = program(("local", 0, 0), ("instance_attr", 1, 0, "size"), ("equals", 1, 1.5))
    frame = Frame(value)
    for number in range(200):
        value.size = float("1.5")
        assert frame.miss(checked) == -1
        del value.size
        value.size = float(f"{number}.25")
        assert frame.miss(checked) == 2
        value.size = (1, float("2.5"))
        assert frame.miss(checked) == 2


def test_an_argument_at_the_address_of_a_dead_one_is_checked_anew():
    checked = program(("local", 0, 0), ("type_is", 0, Module), ("instance_attr", 1, 0, "training"), ("equals", 1, True))
    for number in range(300):
        module = Module()
        module.training = number % 3 != 0
        expected = -1 if module.training else 3
        for _ in range(2):
            assert Frame(module).miss(checked) == expected, number
        del module


def test_an_object_that_replaces_a_dead_one_at_its_address_fails_an_identity_guard():
    from core import _C

    holder = {"m": Module()}
    checked = _C.GuardProgram([("local", 0, 0), ("dict_item", 1, 0, "m"), ("is", 1, holder["m"], True)], 2)
    frame = Frame(holder)
    assert frame.hits(checked)
    for _ in range(50):
        del holder["m"]
        holder["m"] = Module()
        assert frame.miss(checked) >= 0


def test_list_items_and_lengths_below_an_instance_are_read_each_time():
    value = Module()
    value.layers = [Module(), Module()]
    checked = program(
        ("local", 0, 0),
        ("instance_attr", 1, 0, "layers"),
        ("len", 1, 2),
        ("list_item", 2, 1, 1),
        ("instance_attr", 3, 2, "training"),
        ("equals", 3, True),
    )
    frame = Frame(value)
    assert frame.hits(checked)
    value.layers[1].training = False
    assert frame.miss(checked) == 5
    value.layers[1] = Module()
    assert frame.hits(checked)
    value.layers.reverse()
    assert frame.hits(checked)
    value.layers[1].training = False
    assert frame.miss(checked) == 5
    value.layers.append(Module())
    assert frame.miss(checked) == 2


def test_two_programs_may_watch_one_dict_and_die_in_any_order():
    root = tree(2)
    one, two = tree_program(root), tree_program(root)
    frame = Frame(root)
    assert frame.hits(one) and frame.hits(two)
    del one
    root._modules["m0"].training = False
    assert frame.miss(two) >= 0
    root._modules["m0"].training = True
    three = tree_program(root)
    assert frame.hits(two) and frame.hits(three)
    del two
    root._modules["m1"].training = False
    assert frame.miss(three) >= 0


def test_a_dict_that_dies_while_it_is_watched():
    root = tree(3)
    checked = tree_program(root)
    assert Frame(root).hits(checked)
    root.__dict__.clear()
    del root
    other = tree(3)
    assert Frame(other).miss(checked) >= 0


def test_random_changes_give_the_verdict_of_a_program_that_never_armed():
    rng = random.Random(7)
    weights = [object() for _ in range(3)]
    for _ in range(30):
        root = tree(4)
        for child in root._modules.values():
            child._parameters["weight"] = weights[0]
        checked, frame = tree_program(root), Frame(root)
        for _ in range(60):
            child = rng.choice(list(root._modules.values()))
            action = rng.randrange(9)
            if action == 0:
                child.training = rng.choice([True, True, False, 1])
            elif action == 1:
                child._parameters["weight"] = rng.choice(weights)
            elif action == 2:
                child.__dict__ = dict(child.__dict__)
            elif action == 3:
                child.forward = 1
            elif action == 4:
                child.__dict__.pop("forward", None)
            elif action == 5:
                child._parameters = dict(child._parameters)
            elif action == 6:
                root._modules = dict(root._modules)
            elif action == 7:
                child.step += 1
            else:
                child.training = True
                child._parameters["weight"] = weights[0]
            good = all(
                c.training is True and "forward" not in c.__dict__ and c._parameters == {"weight": weights[0]}
                for c in root._modules.values()
            )
            assert (frame.miss(checked) == -1) == good


def test_one_program_over_many_objects_settles():
    checked = program(("local", 0, 0), ("type_is", 0, Module), ("instance_attr", 1, 0, "training"), ("equals", 1, True))
    modules = [Module() for _ in range(10)]
    frames = [Frame(module) for module in modules]
    for frame in frames * 3:
        assert frame.miss(checked) == -1

    def act():
        for frame in frames * 20:
            assert frame.miss(checked) == -1

    assert learnings(checked, act) <= 0
    modules[4].training = False
    assert [frame.miss(checked) for frame in frames].count(-1) == 9
