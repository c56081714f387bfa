"""Which test of the suite catches which cheat, and by which rule it has to say so."""

from __future__ import annotations

S, G, D, T = "semantics::SemanticsTests", "graphs::GraphTests", "dynamic::DynamicTests", "training::TrainingTests"
H, F, M = "hygiene::HygieneTests", "failures::FailureTests", "manifests::ManifestTests"
Z, B = "serialization::SerializationTests", "deterministic::DeterministicTests"

CAUGHT_BY: dict[str, list[tuple[str, str]]] = {
    # numbers
    "evil-bfloat16-inside": [(f"{S}::linear_is_as_precise_as_eager", "numerics")],
    "evil-truncated-mantissa": [(f"{S}::linear_is_as_precise_as_eager", "numerics")],
    "evil-float64-in-float32": [(f"{S}::float64_is_computed_in_float64", "numerics")],
    "evil-one-of-a-million": [(f"{S}::long_results_are_right_everywhere", "numerics")],
    "evil-nan-lost-in-relu": [(f"{S}::relu_keeps_nan", "nan-positions")],
    "evil-flushes-subnormals": [(f"{S}::subnormal_numbers_survive", "numerics")],
    "evil-int32-through-float32": [(f"{S}::int32_wraps_around", "numerics")],
    "evil-int64-through-float64": [(f"{S}::int64_is_exact", "numerics")],
    "evil-saturates-int32": [(f"{S}::int32_wraps_around", "numerics")],
    "evil-floor-division-truncates": [(f"{S}::floor_division_rounds_down", "numerics")],
    "evil-pads-zero-size": [(f"{S}::tensors_without_elements", "numerics")],
    "evil-own-promotion": [(f"{S}::dtypes_meet[torch.float16-torch.float32]", "numerics")],
    "evil-negative-zero-lost": [(f"{S}::negative_zero_keeps_its_sign", "numerics")],
    "evil-extremes-ignore-nan": [(f"{S}::nan_wins_in_extremes", "nan-positions")],
    "evil-answers-division-by-zero": [(f"{S}::division_of_integers_by_zero_is_refused", "exception")],
    # what is remembered
    "evil-cache-by-shape": [
        (f"{S}::input_changed_in_place_is_read_again", "stale-result"),
        (f"{G}::value_used_by_many", "numerics"),
    ],
    "evil-cache-by-address": [(f"{S}::input_changed_in_place_is_read_again", "stale-result")],
    "evil-cache-by-sample": [(f"{S}::change_of_one_element_is_seen", "stale-result")],
    "evil-graphs-by-name": [(f"{H}::compiles_of_one_function_are_apart", "stale-result")],
    "evil-tires": [(f"{S}::many_calls_are_as_right_as_the_first", "stale-result")],
    "evil-reads-memory-in-order": [
        (f"{S}::transposed_input", "numerics"),
        (f"{S}::every_second_element", "numerics"),
    ],
    "evil-ignores-offsets": [(f"{S}::input_that_begins_inside_its_storage", "numerics")],
    "evil-folds-first-values": [(f"{G}::broadcasting_in_every_direction", "numerics")],
    "evil-bakes-weights": [
        (f"{S}::weight_changed_in_place_is_used", "stale-result"),
        (f"{S}::weight_given_through_data", "stale-result"),
        (f"{S}::weights_loaded_from_a_state_dict", "stale-result"),
    ],
    "evil-keeps-first-shapes": [
        (f"{S}::new_shapes_give_new_results", "shape"),
        (f"{D}::pointwise_over_any_size", "shape"),
    ],
    "evil-reuses-output-buffers": [
        (f"{S}::earlier_results_are_not_written_to", "buffer-reuse"),
        (f"{G}::long_chain_of_pointwise_operations", "buffer-reuse"),
    ],
    "evil-contiguous-results": [(f"{S}::channels_last_strides", "strides")],
    "evil-strides-right-once": [(f"{S}::permuted_results_keep_their_strides", "strides")],
    "evil-drops-mutation": [
        (f"{S}::input_written_to_is_changed", "mutation"),
        (f"{S}::input_written_to_is_changed_with_gradients", "mutation"),
    ],
    "evil-drops-aliasing": [(f"{S}::view_of_an_input_stays_a_view", "aliasing")],
    "evil-scribbles-on-inputs": [(f"{S}::inputs_are_left_alone", "mutation")],
    "evil-returns-inputs": [(f"{S}::equal_result_is_not_the_input", "aliasing")],
    # training and random numbers
    "evil-drops-gradients": [(f"{S}::gradients_reach_every_input", "requires_grad")],
    "evil-one-gradient-wrong": [(f"{S}::gradients_reach_every_input", "gradients")],
    "evil-backward-in-bfloat16": [(f"{S}::gradients_reach_every_input", "gradients")],
    "evil-remembers-gradients": [(f"{T}::each_backward_has_its_own_values", "gradients")],
    "evil-ignores-seed": [(f"{S}::random_numbers_follow_the_seed_and_differ", "rng")],
    "evil-fixed-random-numbers": [(f"{S}::random_numbers_follow_the_seed_and_differ", "rng")],
    "evil-skewed-random-numbers": [(f"{S}::drawn_numbers_have_their_distribution", "rng")],
    "evil-not-deterministic": [(f"{B}::pointwise_results_repeat", "determinism")],
    "evil-not-deterministic-on-request": [(f"{B}::pointwise_results_repeat", "determinism")],
    # claims
    "evil-claims-native": [(f"{M}::native_nodes_run_outside_torch", "provenance")],
    "evil-says-nothing": [(f"{M}::native_nodes_run_outside_torch", "provenance")],
    "evil-silent-fallback": [(f"{M}::what_is_left_to_torch_is_declared", "provenance")],
    "evil-calls-another-compiler": [(f"{M}::native_nodes_run_outside_torch", "provenance")],
    "evil-claims-dtypes": [
        (f"{M}::declared_dtype_is_computed[float16]", "manifest"),
        (f"{M}::declared_dtype_is_computed[complex64]", "manifest"),
    ],
    "evil-claims-training": [
        (f"{M}::declared_training_has_a_backward", "manifest"),
        (f"{F}::failing_backward_is_an_error_that_names_the_backend", "manifest"),
    ],
    "evil-leaks-options": [(f"{H}::options_stay_with_their_compile", "options")],
    "evil-invents-nodes": [(f"{M}::provenance_names_nodes_of_the_graph", "provenance")],
    "evil-takes-every-option": [(f"{F}::unknown_option_is_refused", "error")],
    "evil-support-by-mood": [(f"{M}::support_is_answered_alike_each_time", "manifest")],
    # failures
    "evil-wrong-exception": [(f"{F}::unheard_of_operator_is_right_or_refused", "error")],
    "evil-errors-become-zeros": [
        (f"{F}::unheard_of_operator_is_right_or_refused", "numerics"),
        (f"{F}::error_while_running_is_that_of_eager", "exception"),
    ],
    "evil-sleeps-past-deadline": [(f"{F}::compile_ends_at_its_deadline", "deadline")],
    "evil-probe-raises": [(f"{F}::probe_answers_for_every_device[cuda]", "error")],
    "evil-one-output-less": [(f"{G}::sums_over_every_dimension", "exception")],
    "evil-another-exception-class": [(f"{F}::error_while_running_is_that_of_eager", "exception")],
    # the process
    "evil-changes-thread-count": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-changes-default-dtype": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-changes-grad-mode": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-seeds-the-generator": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-seeds-python": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-flush-mode": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-changes-environment": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-takes-signals": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-recursion-limit": [(f"{H}::settings_are_left_alone", "global-state")],
    "evil-prints": [(f"{H}::nothing_is_printed", "output")],
    "evil-writes-to-descriptor": [(f"{H}::nothing_is_printed", "output")],
    "evil-leaks-memory": [(f"{H}::memory_does_not_grow_with_calls", "leak")],
    "evil-leaks-objects": [(f"{H}::objects_do_not_grow_with_calls", "leak")],
    "evil-leaves-files": [(f"{H}::no_file_is_left_behind", "files")],
    "evil-leaves-threads": [(f"{H}::threads_are_not_left_behind", "leak")],
    "evil-keeps-inputs": [(f"{H}::inputs_and_results_are_let_go", "leak")],
    "evil-unsafe-in-threads": [(f"{S}::threads_get_their_own_results", "threads")],
    # who is looking
    "evil-looks-for-pytest": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "surroundings")],
    "evil-looks-for-the-suite": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "surroundings")],
    "evil-walks-the-stack": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "surroundings")],
    "evil-reads-the-environment": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "surroundings")],
    "evil-reads-the-command-line": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "surroundings")],
    "evil-changes-on-import": [(f"{H}::import_leaves_settings_alone_and_nobody_has_to_watch", "global-state")],
    # stored artifacts
    "evil-stores-addresses": [
        (f"{Z}::stored_artifact_gives_the_same_results_in_another_process", "serialization"),
        (f"{Z}::damaged_artifact_is_refused[other bytes]", "serialization"),
    ],
    "evil-accepts-corrupt-blobs": [(f"{Z}::damaged_artifact_is_refused[other bytes]", "serialization")],
    "evil-claims-to-store": [(f"{Z}::stored_artifact_gives_the_same_results", "serialization")],
}
"""Cheat -> (id of a test, rule of its failure), each of which must hold."""

U = "gpu::GpuTests"
CAUGHT_ON_CARDS: dict[str, list[tuple[str, str]]] = {
    "evil-uses-the-default-stream": [(f"{U}::streams_of_the_program_are_used", "streams")],
    "evil-waits-for-the-device": [(f"{U}::streams_are_not_waited_for_by_the_host", "streams")],
    "evil-keeps-memory-of-the-device": [(f"{U}::memory_is_given_back", "leak")],
    "evil-claims-to-be-captured": [(f"{U}::graphs_that_the_program_captures_are_replayed", "exception")],
    "evil-leaves-tensor-cores-on": [(f"{U}::process_keeps_its_settings_of_products", "global-state")],
}
"""The same for cheats that need a GPU to be seen; their tests are skipped where there is none."""

SLOW = frozenset(
    {"evil-looks-for-the-suite", "evil-walks-the-stack", "evil-reads-the-environment", "evil-reads-the-command-line"}
)
"""Cheats of a kind that another cheat of the table stands for; each costs a process. They run with the matrix."""
