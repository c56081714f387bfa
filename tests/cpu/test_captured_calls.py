"""Calls captured as graphs of work and replayed, on a device of the CPU that captures: what is copied, what lives how
long, what is captured anew, and when a call runs plainly."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from graph_device_on_cpu import DeviceOnCpu
from observed import captures, reasons

from core.backends.cuda_graphs import DeviceGraphs, GraphOptions, ReplayedCall
from core.errors import InvalidOption


class Program:
    """A call that counts how often it runs as Python."""

    def __init__(self, fn):
        self.fn, self.runs = fn, 0

    def __call__(self, *inputs):
        self.runs += 1
        return self.fn(*inputs)


def replayed(fn, count, *, graphs=None, sized=(), numbers=(), parameters=(), leased=(), **options):
    program = Program(fn)
    graphs = graphs or DeviceGraphs(DeviceOnCpu())
    made = ReplayedCall(
        program,
        graphs,
        GraphOptions(**options),
        count=count,
        sized=sized,
        numbers=numbers,
        parameters=frozenset(parameters),
        leased=frozenset(leased),
    )
    made.program = program
    return made


def facts(made):
    row = made.row()
    return row["captures"], row["replays"], row["plain"]


def scaled(x, w):
    return (x * w, x.sum(0))


# -- the life of a call -----------------------------------------------------------------------------------------------


def test_a_call_runs_plainly_then_is_captured_then_replayed(heard):
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(4)
    for number in range(5):
        x = torch.randn(3, 4)
        want = scaled(x, w)
        got = made.run(x, w)
        assert all(torch.equal(a, b) for a, b in zip(got, want)), number
    assert facts(made) == (1, 4, 1)
    assert captures(heard)[0].inputs == (1, 1, 0, 0)
    assert reasons(heard) == []


def test_without_warm_up_the_first_call_is_captured():
    made, x, w = replayed(scaled, 2, parameters=[1], warmup=0), torch.randn(3, 4), torch.randn(4)
    assert torch.equal(made.run(x, w)[0], x * w)
    assert facts(made) == (1, 1, 0)


def test_more_warm_up_captures_later():
    made, w = replayed(scaled, 2, parameters=[1], warmup=3), torch.randn(4)
    for _ in range(5):
        made.run(torch.randn(3, 4), w)
    assert facts(made) == (1, 2, 3)


def test_results_of_earlier_calls_keep_their_values():
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(4)
    kept = []
    for _ in range(6):
        x = torch.randn(3, 4)
        kept.append((made.run(x, w), scaled(x, w)))
    for got, want in kept:
        assert all(torch.equal(a, b) for a, b in zip(got, want))
    places = [got[0].data_ptr() for got, _ in kept]
    assert len(set(places)) == len(places)


def test_weights_changed_in_place_are_seen_without_a_new_capture():
    made, x, w = replayed(scaled, 2, parameters=[1]), torch.randn(3, 4), torch.randn(4)
    for _ in range(4):
        with torch.no_grad():
            w.add_(1)
        assert torch.equal(made.run(x.clone(), w)[0], x * w)
    assert facts(made)[0] == 1


def test_a_weight_that_moves_is_captured_anew_and_at_last_copied(heard):
    made, x = replayed(scaled, 2, parameters=[1]), torch.randn(3, 4)
    kept = []
    for _ in range(7):
        w = torch.randn(4)
        kept.append(w)
        assert torch.equal(made.run(x.clone(), w)[0], x * w)
    assert [event.inputs for event in captures(heard)] == [(1, 1, 0, 0)] * 3 + [(2, 0, 0, 0)]
    assert facts(made)[0] == 1  # captures with addresses that are gone are dropped


def test_an_input_that_stays_the_same_object_is_read_where_it_lies(heard):
    made, x, w = replayed(scaled, 2), torch.randn(3, 4), torch.randn(4)
    for _ in range(4):
        x.add_(1)
        assert torch.equal(made.run(x, w)[0], x * w)
    assert captures(heard)[0].inputs == (0, 0, 2, 0)
    other = torch.randn(3, 4)
    assert torch.equal(made.run(other, w)[0], other * w)  # moved: captured anew, copied from now on
    assert torch.equal(made.run(x, w)[0], x * w)
    assert [event.inputs for event in captures(heard)] == [(0, 0, 2, 0), (1, 0, 1, 0)]
    assert made.row()["captures"] == 1


# -- layouts of inputs and results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 3).t(),
        lambda: torch.randn(3, 1).expand(3, 4),
        lambda: torch.randn(6, 8)[::2, ::2],
        lambda: torch.randn(20).as_strided((3, 4), (2, 1)),
        lambda: torch.randn(13)[1:].view(3, 4),
        lambda: torch.randn(()).expand(3, 4),
    ],
    ids=["transposed", "expanded", "with gaps", "overlapping", "with an offset", "one number"],
)
def test_inputs_of_any_strides_keep_values_and_strides(make):
    def program(x):
        seen.append(x.stride())
        return (x * 2,)

    seen = []
    made = replayed(program, 1)
    for _ in range(4):
        x = make()
        got = made.run(x)[0]
        assert torch.equal(got, x * 2) and got.stride() == (x * 2).stride()
    assert set(seen) == {make().stride()}
    assert facts(made) == (1, 3, 1)


def test_results_of_any_strides_keep_them():
    def program(x):
        y = x * 2
        spread = y.sum(0, keepdim=True).expand(3, 4)
        return y.t(), spread, (x * 3)[:, ::2], (x + 1).to(torch.int32), x.new_empty(0, 3), x > 0

    made = replayed(program, 1)
    for _ in range(4):
        x = torch.randn(3, 4)
        got, want = made.run(x), program(x)
        assert all(torch.equal(a, b) for a, b in zip(got, want))
        assert [a.stride() for a in got] == [b.stride() for b in want]
    assert facts(made) == (1, 3, 1)


def test_many_results_of_several_dtypes_are_brought_out_together():
    def program(x):
        return tuple((x * k).to(dtype) for k in range(1, 4) for dtype in (torch.float32, torch.bfloat16, torch.int64))

    made = replayed(program, 1)
    for _ in range(3):
        x = torch.randn(5, 7)
        got = made.run(x)
        assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(got, program(x)))
    assert len({value.data_ptr() for value in got}) == 9


def test_results_that_are_inputs_or_views_of_them_stay_that():
    def program(x, w):
        return x, w, x[1:], w.t(), x + 1, None, 3

    made = replayed(program, 2, parameters=[1])
    w = torch.randn(2, 2)
    for _ in range(4):
        x = torch.randn(3, 4)
        got = made.run(x, w)
        assert got[0] is x and got[1] is w and got[5:] == (None, 3)
        assert got[2].data_ptr() == x[1:].data_ptr() and got[3].data_ptr() == w.data_ptr()
        assert torch.equal(got[2], x[1:]) and torch.equal(got[3], w.t()) and torch.equal(got[4], x + 1)


def test_one_object_in_two_results_stays_one():
    def program(x):
        y = x + 1
        return y, y

    made = replayed(program, 1)
    for _ in range(3):
        first, second = made.run(torch.randn(3))
        assert first is second


def test_an_input_with_gradients_does_not_reach_autograd_through_a_replay():
    made = replayed(lambda x, w: ((x * w).detach(),), 2, parameters=[1])
    w = torch.randn(4, requires_grad=True)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        got = made.run(x, w)[0]
        assert torch.equal(got, x.detach() * w.detach())
    assert not got.requires_grad


# -- results that stay in the graph's memory --------------------------------------------------------------------------


def test_results_that_are_let_go_lie_in_the_same_memory_again():
    made = replayed(lambda x: (x * 2, x * 3), 1, leased=[1])
    places = set()
    for _ in range(5):
        x = torch.randn(3, 4)
        got = made.run(x)
        assert torch.equal(got[0], x * 2) and torch.equal(got[1], x * 3)
        places.add(got[1].data_ptr())
        del got
    assert facts(made) == (1, 4, 1) and len(places) <= 2


def test_results_that_are_held_are_never_written_over(heard):
    made = replayed(lambda x: (x * 2, x * 3), 1, leased=[0, 1], instances=3)
    kept = []
    for _ in range(8):
        x = torch.randn(3, 4)
        kept.append((made.run(x), (x * 2, x * 3)))
        for got, want in kept:
            assert all(torch.equal(a, b) for a, b in zip(got, want))
    assert facts(made) == (3, 3, 5)
    assert [("3 calls" in reason, "cudagraph_instances" in reason) for reason in reasons(heard)] == [(True, True)]
    del kept, got
    x = torch.randn(3, 4)
    assert torch.equal(made.run(x)[0], x * 2)
    assert facts(made) == (3, 4, 5)


def test_a_view_of_a_result_holds_its_memory():
    made = replayed(lambda x: (x * 2,), 1, leased=[0])
    made.run(torch.randn(3, 4))
    x = torch.randn(3, 4)
    held = made.run(x)[0][1].view(2, 2)
    made.run(torch.randn(3, 4))
    assert torch.equal(held, (x * 2)[1].view(2, 2))
    assert facts(made)[0] == 2
    del held
    for _ in range(3):
        made.run(torch.randn(3, 4))
    assert facts(made)[0] == 2


def test_results_outlive_the_capture_that_they_lie_in():
    made = replayed(lambda x: (x * 2,), 1, leased=[0], warmup=0)
    x = torch.randn(300, 40)
    held = made.run(x)[0]
    made.clear()
    del made
    gc.collect()
    spoilers = [torch.full((300, 40), 7.0) for _ in range(20)]
    assert torch.equal(held, x * 2) and spoilers


def test_captures_in_one_pool_spoil_nothing_of_each_other():
    graphs = DeviceGraphs(DeviceOnCpu())
    made = [replayed(lambda x, k=k: (x * k, x + k), 1, graphs=graphs) for k in range(3)]
    kept = []
    for _ in range(4):
        x = torch.randn(3, 4)
        kept += [(each.run(x), (x * k, x + k)) for k, each in enumerate(made)]
    for got, want in kept:
        assert all(torch.equal(a, b) for a, b in zip(got, want))
    assert [facts(each) for each in made] == [(1, 3, 1)] * 3


def test_a_graph_reads_the_kept_results_of_another_where_they_lie(heard):
    graphs = DeviceGraphs(DeviceOnCpu())
    first = replayed(lambda x: (x * 2,), 1, graphs=graphs, leased=[0])
    second = replayed(lambda y: (y + 1,), 1, graphs=graphs)
    for _ in range(5):
        x = torch.randn(3, 4)
        assert torch.equal(second.run(first.run(x)[0])[0], x * 2 + 1)
    assert [event.inputs for event in captures(heard)] == [(1, 0, 0, 0), (0, 0, 0, 1)]


def test_two_calls_in_flight_have_two_instances_of_both_graphs(heard):
    graphs = DeviceGraphs(DeviceOnCpu())
    first = replayed(lambda x: (x * 2,), 1, graphs=graphs, leased=[0])
    second = replayed(lambda y: (y + 1,), 1, graphs=graphs)
    second.run(first.run(torch.randn(3, 4))[0])
    for _ in range(6):
        a, b = torch.randn(3, 4), torch.randn(3, 4)
        one, two = first.run(a)[0], first.run(b)[0]
        assert torch.equal(second.run(two)[0], b * 2 + 1)
        del two
        assert torch.equal(second.run(one)[0], a * 2 + 1)
        del one
    assert (facts(first)[0], facts(second)[0]) == (2, 2)
    assert reasons(heard) == []


def test_a_graph_behind_a_plain_call_runs_plainly_for_that_call():
    graphs = DeviceGraphs(DeviceOnCpu())
    first = replayed(lambda x: (x * 2,), 1, graphs=graphs, leased=[0], instances=1)
    second = replayed(lambda y: (y + 1,), 1, graphs=graphs)
    for _ in range(3):
        second.run(first.run(torch.randn(3, 4))[0])
    before = facts(second)
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    one, two = first.run(a)[0], first.run(b)[0]
    assert torch.equal(second.run(two)[0], b * 2 + 1) and torch.equal(second.run(one)[0], a * 2 + 1)
    assert facts(second) == (before[0], before[1] + 1, before[2] + 1)


# -- sizes and numbers ------------------------------------------------------------------------------------------------


def test_each_size_is_captured_once_and_those_beyond_the_limit_run_plainly(heard):
    made, w = replayed(scaled, 2, sized=[0], parameters=[1], sizes=2), torch.randn(4)
    for _ in range(3):
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4)
            got = made.run(x, w)
            assert all(torch.equal(a, b) for a, b in zip(got, scaled(x, w)))
    assert facts(made) == (2, 4, 5)
    assert len(reasons(heard)) == 1 and "cudagraph_sizes" in reasons(heard)[0]


def test_a_number_is_part_of_what_is_captured():
    made = replayed(lambda x, k: (x * k,), 2, numbers=[1])
    x = torch.tensor([1.0, -2.0])
    for _ in range(3):
        for k in (2, 2.0, True, -0.0, 0.0, 3):
            got, want = made.run(x.clone(), k)[0], x * k
            assert torch.equal(got, want) and got.dtype is want.dtype
            assert torch.equal(torch.signbit(got), torch.signbit(want))
    assert facts(made)[0] == 6


def test_strides_of_a_sized_input_are_part_of_its_size():
    made = replayed(lambda x: (x.clone(),), 1, sized=[0])
    for _ in range(3):
        for x in (torch.randn(4, 4), torch.randn(4, 4).t()):
            got = made.run(x)[0]
            assert torch.equal(got, x) and got.stride() == x.stride()
    assert facts(made)[0] == 2


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_the_seed_and_move_on():
    def program(x):
        return (torch.nn.functional.dropout(x, 0.5, True),)

    made, x = replayed(program, 1), torch.ones(64)
    torch.manual_seed(5)
    want = [program(x)[0] for _ in range(5)]
    torch.manual_seed(5)
    got = [made.run(x.clone())[0] for _ in range(5)]
    assert all(torch.equal(a, b) for a, b in zip(got, want))
    assert not torch.equal(got[3], got[4])


# -- the program's own captures, streams, threads ---------------------------------------------------------------------


def test_inside_a_capture_of_the_program_the_call_is_plain():
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(4)
    for _ in range(3):
        made.run(torch.randn(3, 4), w)
    runs, before = made.program.runs, facts(made)
    made.graphs.device.busy = True
    x = torch.randn(3, 4)
    assert torch.equal(made.run(x, w)[0], x * w)
    assert made.program.runs == runs + 1 and facts(made) == before


def test_another_stream_waits_for_the_one_before():
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(4)
    device = made.graphs.device
    for stream in (0, 0, 0, 7, 7, 0):
        device.now = stream
        made.run(torch.randn(3, 4), w)
    assert device.waits == [(7, 0), (0, 7)]


def test_a_capture_with_kept_results_waits_for_its_own_stream_too():
    graphs = DeviceGraphs(DeviceOnCpu())
    kept = replayed(lambda x: (x * 2,), 1, graphs=graphs, leased=[0], warmup=0)
    other = replayed(lambda x: (x + 1,), 1, graphs=graphs, warmup=0)
    graphs.device.now = 1
    kept.run(torch.randn(3))
    graphs.device.now = 2
    other.run(torch.randn(3))
    graphs.device.waits.clear()
    kept.run(torch.randn(3))
    assert graphs.device.waits == [(2, 1)]


def test_threads_share_captures_without_mixing_their_values():
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(64)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(40):
            x = torch.randn(16, 64, generator=generator)
            got = made.run(x, w)
            if not torch.equal(got[0], x * w):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and made.row()["captures"] == 1


# -- what can't be captured -------------------------------------------------------------------------------------------


def test_a_capture_that_fails_leaves_the_call_plain_for_good(heard):
    made, w = replayed(scaled, 2, parameters=[1]), torch.randn(4)
    made.graphs.device.fails = RuntimeError("operation not permitted when stream is capturing\nmore")
    for _ in range(4):
        x = torch.randn(3, 4)
        assert torch.equal(made.run(x, w)[0], x * w)
    made.graphs.device.fails = None
    made.run(torch.randn(3, 4), w)
    assert facts(made) == (0, 0, 5)
    assert len(reasons(heard)) == 1 and reasons(heard)[0].endswith("not permitted when stream is capturing")


def test_a_failed_capture_takes_no_random_numbers():
    made = replayed(lambda x: (torch.rand_like(x),), 1, warmup=0)
    made.graphs.device.fails = RuntimeError("no")
    x = torch.ones(8)
    torch.manual_seed(3)
    got = made.run(x)[0]
    torch.manual_seed(3)
    assert torch.equal(got, torch.rand_like(x))


@pytest.mark.parametrize(
    "value, word",
    [(torch.ones(3, device="meta"), "meta"), (torch.ones(3).to_sparse(), "sparse")],
    ids=["another device", "sparse"],
)
def test_an_input_that_does_not_lie_on_the_device_is_said(value, word, heard):
    made = replayed(lambda x, y: (x + 1,), 2, warmup=0)
    made.run(torch.ones(3), value)
    made.run(torch.ones(3), value)
    assert facts(made) == (0, 0, 2)
    assert len(reasons(heard)) == 1 and word in reasons(heard)[0]


def test_an_error_of_the_program_is_the_programs():
    def program(x):
        raise ValueError("of the program")

    made = replayed(program, 1)
    with pytest.raises(ValueError, match="of the program"):
        made.run(torch.ones(3))


@pytest.mark.parametrize("given", [{"warmup": -1}, {"sizes": 0}, {"instances": 0}, {"sizes": True}])
def test_options_that_make_no_sense_are_refused(given):
    with pytest.raises(InvalidOption):
        GraphOptions(**given)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_everything_is_dropped_by_a_reset_and_captured_anew():
    graphs = DeviceGraphs(DeviceOnCpu())
    made, w = replayed(scaled, 2, parameters=[1], graphs=graphs), torch.randn(4)
    for _ in range(3):
        made.run(torch.randn(3, 4), w)
    graphs.clear()
    assert facts(made)[0] == 0 and graphs.device.trims == 1 and len(graphs.recordings) == 0
    for _ in range(3):
        x = torch.randn(3, 4)
        assert torch.equal(made.run(x, w)[0], x * w)
    assert facts(made)[0] == 1


def test_captures_die_with_the_call():
    graphs = DeviceGraphs(DeviceOnCpu())
    made = replayed(scaled, 2, parameters=[1], graphs=graphs)
    w = torch.randn(4)
    for _ in range(3):
        made.run(torch.randn(3, 4), w)
    assert len(graphs.recordings) == 1
    del made
    gc.collect()
    assert len(graphs.recordings) == 0 and len(graphs.calls) == 0


def test_a_new_pool_begins_when_the_last_capture_left_the_old_one():
    graphs = DeviceGraphs(DeviceOnCpu())
    made, x = replayed(lambda x: (x * 2,), 1, graphs=graphs, warmup=0), torch.ones(3)
    made.run(x)
    first = graphs.pool()
    assert graphs.pool() is first
    made.clear()
    gc.collect()
    first.clear()  # the device's own hold on its work
    assert graphs.pool() is not first
