"""Tests that may take long, each with the reason: see tests/conftest.py."""

_KILLED = 'Runs in processes of their own are killed, and start anew with all libraries.'
_COMPILED = 'Programs for several devices, sizes or structures are compiled.'

# Tests that may take longer than 20 seconds of quiet cores.
REASONS: dict[str, str] = {
    'tests/launch/flink/run_test.py::test_on_flink_the_corpus_is_the_local_one_whatever_is_killed': (
        'A real cluster starts, runs the job, loses a worker in the middle of it, and runs the rest: one '
        'run of each kind is the least that shows it.'
    ),
    'tests/attacks/sockets_test.py::test_a_run_on_this_machine_listens_nowhere': (
        'Each way to run on this machine is watched from the start of its process to the end.'
    ),
    'tests/attacks/sockets_test.py::test_what_beam_would_open_is_told': (
        'The same with ports open, and with the workers of Beam, which load all libraries anew.'
    ),
    'tests/launch/demo/demo_test.py::test_without_the_weights_it_says_so_and_goes_on': (
        'It is the demo as a new user runs it, in processes of its own, from the records to the pages.'
    ),
    'tests/notebooks_test.py::test_the_quickstart_runs_to_its_end': (
        'It is the notebook as a new user runs it, in a kernel of its own, from records to evaluation.'
    ),
    'tests/models/generate/individual_weights_test.py::test_spending_hangs_on_no_other_text_given_the_released_prefix': (
        'It decodes nine batches with Gemma 3 270M, whose rounding a smaller model would not show.'
    ),
    'tests/pipeline/screen/interrupt_test.py::test_a_run_ends_at_any_stage_and_goes_on_later': (
        'Two processes load all libraries and the model, one to be stopped and one to go on.'
    ),
    'tests/pipeline/condition_run_test.py::test_the_corpus_has_the_records_mix': (
        'The loop of a structure with the sparse vector takes half a minute to compile.'
    ),
    'tests/pipeline/condition_run_test.py::test_a_resumed_run_has_the_same_counts_and_the_same_corpus': (
        'A run with a structure, and the same run again.'
    ),
    'tests/models/sampling/decoder_source_test.py::test_a_model_of_google': (
        'It loads Gemma 3 270M and compiles the loop for 262,144 tokens, which no smaller model does.'
    ),
    'tests/attacks/grammars_test.py::test_without_limits_a_bomb_explodes': (
        'It lasts until the kernel ends it, at its limit of processor time.'
    ),
    'tests/attacks/killed_test.py::test_a_run_killed_before_its_votes_have_a_name_goes_on': _KILLED,
    'tests/launch/engine_main_test.py::test_a_run': 'An engine starts the command as Dataflow does.',
    'tests/models/decoders/gemma/decoder_test.py::test_two_devices_give_what_one_gives': _COMPILED,
    'tests/models/finetuning/devices_test.py::test_eight_devices_train_the_adapter_that_one_trains': _COMPILED,
    'tests/models/finetuning/step_test.py::test_layers_that_are_computed_again_are_not_kept': _COMPILED,
    'tests/pipeline/durable_run_test.py::test_failed_bundles_that_a_runner_repeats_write_the_same': _KILLED,
    'tests/pipeline/durable_run_test.py::test_killed_around_the_ledger_a_run_is_charged_once': _KILLED,
    'tests/pipeline/durable_run_test.py::test_killed_at_file_operations_a_run_ends_as_if_undisturbed': _KILLED,
    'tests/pipeline/durable_run_test.py::test_killed_from_outside_at_any_moment_a_run_ends_as_if_undisturbed': (
        _KILLED
    ),
    'tests/pipeline/durable_run_test.py::test_two_launchers_at_once_write_one_corpus': _KILLED,
    'tests/pipeline/fine_tune_run_test.py::test_texts_have_the_structure_that_each_run_of_an_adapter_asks_for': (
        _COMPILED
    ),
    'tests/pipeline/ledger/mixture_test.py::test_a_refused_run_says_which_budget_would_hold_it': (
        'It solves for a budget of composed losses, twice.'
    ),
    'tests/pipeline/main_test.py::test_the_screen_of_a_run_is_clean': 'Two processes load all libraries.',
}

# Tests that CI leaves out, and `make test-all` takes. Each proves at greater length what another proves. A
# key names a file, a test with all its cases, or one case.
LONGEST: dict[str, str] = {
    'tests/launch/image/build_test.py': '`make image-check` builds the image and runs it; CI does so too.',
    'tests/launch/package_test.py::test_a_machine_without_a_network_installs_the_wheelhouse_and_runs_a_job': (
        'It downloads and installs some 5 GB.'
    ),
    'tests/launch/package_test.py::test_an_installation_without_models_is_light_and_plans': (
        'It installs each extra into an environment of its own.'
    ),
    'tests/models/sampling/endpoint_test.py::test_a_server_of_llama_cpp_writes_texts': (
        'It needs the server that `make llama` compiles for ten minutes.'
    ),
    'tests/attacks/full_disk_test.py::test_full_at_every_single_write': (
        'A run fails at each of its writes; CI has the run that goes on each time that room is made.'
    ),
    'tests/attacks/killed_test.py::test_a_run_killed_at_every_stage_goes_on': (
        'A run is killed at each stage; `make test` kills it at one.'
    ),
    'tests/launch/flink/machines_test.py::test_on_two_machines_the_corpus_is_the_local_one': (
        'Two machines do what one with two task managers does in run_test.py.'
    ),
    'tests/launch/flink/run_test.py::test_on_flink_the_corpus_is_the_local_one_whatever_is_killed[in turn]': (
        'Two kills in turn; `make test` has them at once.'
    ),
    'tests/pipeline/commands/touched_test.py::test_commands_write_where_they_say_and_reach_nothing[slow]': (
        'Commands that load a model; CI has all others.'
    ),
    'tests/pipeline/durable_run_test.py::test_killed_at_file_operations_a_run_ends_as_if_undisturbed[difference-True]': (
        'Kills at every place; CI has the common ones.'
    ),
    'tests/pipeline/durable_run_test.py::test_killed_at_file_operations_a_run_ends_as_if_undisturbed[median-True]': (
        'Kills at every place; CI has the common ones.'
    ),
    'tests/pipeline/durable_run_test.py::test_killed_from_outside_at_any_moment_a_run_ends_as_if_undisturbed[8]': (
        'Eight kills; `make test` has the case of two.'
    ),
    'tests/pipeline/durable_run_test.py::test_two_launchers_at_once_write_one_corpus[10]': (
        'Ten races; CI has the case of three.'
    ),
    'tests/pipeline/ledger/machine_test.py::test_ten_thousand_steps': (
        'Ten thousand steps; `make test` has fewer of the same.'
    ),
}
