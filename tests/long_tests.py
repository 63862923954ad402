"""The longest tests: see tests/conftest.py."""

# Tests that CI leaves out, and `make test-all` takes. Each proves at greater length what another proves. A
# key names a file, a test with all its cases, or one case.
LONGEST: dict[str, str] = {
    'tests/pipeline/durable_run_test.py::test_every_bundle_twice_writes_the_same[median-FnApiRunner]': (
        'CI has the difference, and a median that is killed.'
    ),
    'tests/pipeline/durable_run_test.py::test_every_bundle_twice_writes_the_same[median-BundleBasedDirectRunner]': (
        'CI has the difference, and a median that is killed.'
    ),
    'tests/pipeline/durable_run_test.py::test_a_damaged_batch_is_named_and_is_decoded_again_once_removed[median]': (
        'CI has the difference, and a median that is killed.'
    ),
    'tests/pipeline/durable_run_test.py::test_what_killed_writers_left_is_neither_read_nor_published[median]': (
        'CI has the difference, and a median that is killed.'
    ),
    'tests/pipeline/attributes_run_test.py::test_an_adapter_of_the_bundled_model_writes_texts_of_all_combinations': (
        'CI has adapters whose combinations are counted.'
    ),
    'tests/launch/flink/run_test.py::test_on_flink_another_method_releases_what_it_releases_locally[evolve]': (
        'CI has votes on tokens, which are killed; and this method on other runners.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_gradients_are_the_librarys[gemma4]': (
        'CI has it by differences, and the library for Gemma 3n and for experts.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_tunable[gemma3n-2-check_a_gradient_is_the_slope]': (
        "CI has the library's gradients."
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_tunable[experts-2-check_a_gradient_is_the_slope]': (
        "CI has the library's gradients."
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_what_a_gradient_keeps_is_what_the_compiler_holds[gemma3n-e4b]': (
        'CI has 26B-A4B and Gemma 3 270M.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_what_a_gradient_keeps_is_what_the_compiler_holds[gemma4-e2b]': (
        'CI has 26B-A4B and Gemma 3 270M.'
    ),
    'tests/models/decoders/gemma/decoder_test.py::test_contract[gemma3n-check_steps_of_several_tokens_equal_single_ones]': (
        'CI has Gemma 4, and single steps of Gemma 3n.'
    ),
    'tests/models/decoders/gemma/decoder_test.py::test_contract[experts-check_steps_of_several_tokens_equal_single_ones]': (
        'CI has Gemma 4, and single steps of experts.'
    ),
    'tests/pipeline/gemma4_run_test.py::test_a_run_ends_with_texts_and_its_report[tune-refine]': (
        'CI has its two parts, fine-tune and evolve.'
    ),
    'tests/benchmarks/compile_benchmark_test.py::test_a_step_writes_nothing_of_the_size_of_its_cache[gemma2-2b-h100]': (
        'CI has 270M and E2B.'
    ),
    'tests/benchmarks/compile_benchmark_test.py::test_a_step_writes_nothing_of_the_size_of_its_cache[gemma2-2b-v5e]': (
        'CI has the bytes that E2B moves on a v5e, but no cache there that is not copied.'
    ),
    'tests/benchmarks/compile_benchmark_test.py::test_a_step_has_fifteen_kernels_for_each_layer[gemma2-2b]': (
        'CI has 270M.'
    ),
    'tests/benchmarks/accelerator_benchmark_test.py::test_the_other_parts_run_to_their_ends[tuning]': (
        'A part of a benchmark; CI has two others.'
    ),
    'tests/contracts/decoder_test.py::test_tunable[None-gemma-check_a_gradient_is_the_slope]': (
        'CI has the factors, and all weights of Gemma 4.'
    ),
    'tests/models/decoders/transformer/another_family_test.py::test_tunable[None-check_a_gradient_is_the_slope]': (
        'CI has the factors, and all weights of Gemma 4.'
    ),
    'tests/models/decoders/gemma/gguf_weights_test.py::test_loading_holds_little_more_than_the_weights[float32]': (
        'CI has bfloat16.'
    ),
    'tests/models/finetuning/train_test.py::test_with_little_noise_it_learns_what_the_units_say[None-0.003]': (
        'CI has the factors, and the gradient of all weights by hand.'
    ),
    'tests/models/finetuning/train_test.py::test_a_step_is_compiled_once_where_weights_lie_on_a_mesh[None]': (
        'CI has the factors.'
    ),
    'tests/pipeline/attributes_run_test.py::test_a_run_is_that_of_one_column_with_all_values[fine-tune]': (
        'CI has votes; attributes are the same to every method.'
    ),
    'tests/pipeline/condition_run_test.py::test_the_corpus_has_the_records_mix[difference, individual, two rounds]': (
        '`make test` has the mean; structure_run_test.py has these rounds.'
    ),
    'tests/pipeline/fine_tune_command_test.py::test_all_weights_are_trained_and_texts_are_sampled_with_them': (
        'CI has the same run without the command line.'
    ),
    'tests/pipeline/structure_run_test.py::test_every_complete_example_is_valid[median]': (
        'CI has the other aggregates.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_logits_of_every_size_are_the_librarys[gemma3n-e4b]': (
        'Widths of another number; CI has E2B.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_logits_of_every_size_are_the_librarys[gemma4-e4b]': (
        'Widths of another number; CI has E2B.'
    ),
    'tests/models/decoders/gemma/later_generations_test.py::test_logits_of_every_size_are_the_librarys[gemma4-31b]': (
        'A size without experts or embeddings of layers; CI has 26B-A4B, whose attention is alike.'
    ),
    'tests/launch/image/build_test.py': '`make image-check` builds the image and runs it; CI does so too.',
    'tests/attacks/grammars_test.py::test_without_limits_a_bomb_explodes': (
        'It shows that the limits are needed; CI shows that they hold.'
    ),
    'tests/models/finetuning/step_test.py::test_what_a_gradient_keeps_is_what_the_compiler_holds[True]': (
        'Layers that are computed again; CI has those that are kept.'
    ),
    'tests/pipeline/canary_audit_test.py::test_many_batches_notice_what_is_copied[False]': (
        'An audit that notices nothing; CI has the one that does, and others that notice nothing.'
    ),
    'tests/pipeline/structure_run_test.py::test_every_complete_example_is_valid[difference, worst case]': (
        'Worst-case accounting; CI has the individual one, and another aggregate.'
    ),
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
    'tests/launch/flink/run_test.py::test_on_flink_another_method_releases_what_it_releases_locally[fine-tune]': (
        'One element with all units before it, as a round of votes is.'
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
