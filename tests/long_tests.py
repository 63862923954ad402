"""Which tests may be long, and which are kept for `make test-long`: see tests/conftest.py."""

# Tests that may take longer than 20 seconds of quiet cores, each with the reason.
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
    'tests/models/generate/individual_weights_test.py::test_spending_hangs_on_no_other_text_given_the_released_prefix': (  # noqa: E501
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
}

# Cases that only `make test-long` takes, by file and test, for another case in `make test` proves the same of
# the same code: of another number format, size, architecture or aggregate. A name is of the whole test, or of
# one of its cases. Collecting the tests ends with an error where one names nothing.
REPEATS: dict[str, tuple[str, ...]] = {
    'tests/contracts/decoder_test.py': (
        'test_decoder[gemma-check_steps_of_several_tokens_equal_single_ones]',
        'test_decoder[gemma-check_padding_rows_vote_nothing]',
        'test_decoder[gemma-check_micro_batches_equal_the_whole]',
        'test_decoder[gemma-check_a_row_does_not_move_in_steps_of_several_tokens]',
        'test_decoder[gemma-check_rows_at_their_own_places_are_those_of_one_place]',
    ),
    'tests/launch/dataflow/job_description_test.py': (
        'test_of_fine_tuning_the_hint_is_on_training_and_on_sampling_and_nowhere_else[4]',
    ),
    'tests/launch/flink/run_test.py': (
        'test_on_flink_another_method_releases_what_it_releases_locally',
    ),
    'tests/models/clustering/minilm_test.py': (
        *(
         f'test_a_text_is_the_same_at_every_start_and_place_of_its_block[128-{dtype}]'
         for dtype in ('float32', 'bfloat16', 'int8')
        ),
        *(
            f'test_a_text_is_the_same_at_every_start_and_place_of_its_block[{length}-{dtype}]'
            for length in (192, 256)
            for dtype in ('float32', 'bfloat16', 'int8')
        ),
    ),
    'tests/models/decoders/gemma/decoder_test.py': (
        'test_a_step_copies_no_cache[2-6]',
        'test_bfloat16_is_no_further_from_float32_than_in_the_library[gemma3]',
        'test_cached_steps_equal_a_full_recomputation[gemma1]',
        'test_cached_steps_equal_a_full_recomputation[gemma2 without groups]',
        'test_contract[gemma3-check_steps_of_several_tokens_equal_single_ones]',
        'test_pooled_states_equal_each_text_alone[gemma3]',
        'test_stream_equals_a_slow_loop_without_cache[bundled-private]',
        'test_a_row_does_not_move_with_its_slot[20-0.0001-float32]',
        'test_a_row_does_not_move_with_its_slot[24-0.0-float32]',
        'test_a_step_copies_no_cache[1-1]',
        'test_a_step_copies_no_cache[3-1]',
        'test_bfloat16_is_no_further_from_float32_than_in_the_library[gemma1]',
        'test_bfloat16_is_no_further_from_float32_than_in_the_library[gemma2 without groups]',
        'test_bfloat16_is_no_further_from_float32_than_in_the_library[gemma2]',
        'test_pooled_states_equal_each_text_alone[gemma1]',
        'test_pooled_states_equal_each_text_alone[gemma2 without groups]',
        'test_pooled_states_equal_each_text_alone[gemma2]',
        'test_stream_equals_a_slow_loop_without_cache[bundled-top 20]',
        'test_stream_equals_a_slow_loop_without_cache[gemma3-private]',
    ),
    'tests/models/decoders/gemma/gguf_weights_test.py': (
        'test_loading_holds_little_more_than_the_weights[float32]',
    ),
    'tests/models/finetuning/train_test.py': (
        'test_with_little_noise_it_learns_what_the_units_say[None-0.003]',
        'test_a_step_is_compiled_once_where_weights_lie_on_a_mesh[None]',
    ),
    'tests/models/generate/loop_test.py': (
        'test_streams_come_as_often_as_enumeration_says[0.8-difference]',
        'test_micro_batches_change_nothing[sparse]',
        'test_micro_batches_change_nothing[difference]',
        'test_streams_come_as_often_as_enumeration_says[0.8-mean]',
        'test_streams_come_as_often_as_enumeration_says[None-difference]',
    ),
    'tests/models/generate/step_test.py': (
        'test_a_stream_is_the_same_however_many_tokens_a_step_takes[difference, worst case]',
        'test_a_stream_is_the_same_however_many_tokens_a_step_takes[mean, sparse vector, top 2]',
    ),
    'tests/models/grammars/vocabulary_test.py': ('test_examples_are_valid[False]',),
    'tests/models/privacy/individual_test.py': (
        'test_a_price_is_never_below_the_exact_one_and_hardly_above[usual-1280]',
    ),
    'tests/pipeline/attributes_run_test.py': (
        'test_an_adapter_of_the_bundled_model_writes_texts_of_all_combinations',
        'test_a_run_is_that_of_one_column_with_all_values[fine-tune]',
        'test_combinations_are_counted_with_noise_and_the_card_has_a_count_of_each[all-weights]',
    ),
    'tests/pipeline/screen/interrupt_test.py': (
        'test_a_run_ends_at_any_stage_and_goes_on_later[loading]',
    ),
    'tests/pipeline/job_test.py': (
        'test_a_sample_of_units_is_all_that_a_run_takes[difference in clusters]',
        'test_the_loss_of_a_median_run_stays_with_the_curator[None]',
    ),
    'tests/pipeline/durable_run_test.py': (
        'test_every_bundle_twice_writes_the_same[median-BundleBasedDirectRunner]',
        'test_killed_at_file_operations_a_run_ends_as_if_undisturbed[median-False]',
    ),
    'tests/pipeline/reference_run_test.py': (
        'test_a_runner_that_repeats_bundles_writes_the_same[options1]',
        'test_a_run_that_died_between_the_rounds_goes_on_to_the_same_corpus',
        'test_a_runner_that_repeats_bundles_writes_the_same[options0]',
        'test_rounds_of_other_plans[clusters]',
        'test_rounds_of_other_plans[individual accounting]',
    ),
    'tests/models/privacy/enumeration_test.py': (
        *(
         f'test_no_output_of_a_median_batch_loses_more_than_it_reports[2-{case}]'
         for case in (
             'one run', 'one token', 'two runs of the best 2', 'two tokens of the best 2',
             'two runs, a stop token, several examples',
         )
        ),
    ),
    'tests/models/finetuning/sample_test.py': (
        *(
         f'test_rows_are_those_of_a_loop_without_a_cache_or_a_compiled_mask[1.0-2-{of}]'
         for of in ('none', 'none, long enough', 'regex', 'schema')
        ),
    ),
    'tests/pipeline/condition_run_test.py': (
        'test_a_resumed_run_has_the_same_counts_and_the_same_corpus',
    ),
    'tests/pipeline/evaluation/in_context_test.py': (
        'test_a_real_model_reads_topics',
    ),
    'tests/pipeline/structure_run_test.py': (
        'test_a_pattern_holds_every_text',
    ),
    'tests/pipeline/fine_tune_run_test.py': (
        'test_a_run_of_the_bundled_model_writes_valid_texts_alone',
    ),
    'tests/pipeline/fine_tune_command_test.py': (
        'test_all_weights_are_trained_and_texts_are_sampled_with_them',
    ),
    'tests/tools/bundled/evaluate_test.py': (
        'test_texts_of_the_topic_lower_the_loss_and_others_do_not_help_as_much',
    ),
    'tests/pipeline/adapter_run_test.py': (
        'test_records_vote_with_a_difference_of_all_weights',
    ),
}  # fmt: skip

# Files that take most of the time of tests without a run, as a rule to compile: `make check` leaves them out,
# and `make test` takes them.
HEAVY: frozenset[str] = frozenset({
    'tests/benchmarks/accelerator_benchmark_test.py',
    'tests/contracts/aggregate_test.py',
    'tests/contracts/constraint_test.py',
    'tests/contracts/decoder_test.py',
    'tests/models/clustering/centers_test.py',
    'tests/models/clustering/embedder_test.py',
    'tests/models/clustering/minilm_test.py',
    'tests/models/constraints/tabulated_test.py',
    'tests/models/decoders/gemma/architectures_test.py',
    'tests/models/decoders/gemma/checkpoints_test.py',
    'tests/models/decoders/gemma/columns_test.py',
    'tests/models/decoders/gemma/decoder_test.py',
    'tests/models/finetuning/loss_test.py',
    'tests/models/finetuning/sample_test.py',
    'tests/models/finetuning/step_test.py',
    'tests/models/finetuning/train_test.py',
    'tests/models/generate/batch_test.py',
    'tests/models/generate/constrained_stream_test.py',
    'tests/models/generate/leave_one_out_test.py',
    'tests/models/generate/loop_test.py',
    'tests/models/generate/step_test.py',
    'tests/models/grammars/vocabulary_test.py',
    'tests/models/privacy/accounting/run_cost_test.py',
    'tests/models/privacy/accounting/subsampled_test.py',
    'tests/models/privacy/aggregates/clipping_test.py',
    'tests/models/privacy/aggregates/difference_test.py',
    'tests/models/privacy/aggregates/median_test.py',
    'tests/models/privacy/candidates_test.py',
    'tests/models/privacy/containment_test.py',
    'tests/models/privacy/enumeration_test.py',
    'tests/models/privacy/ex_post_test.py',
    'tests/models/privacy/gradients_audit_test.py',
    'tests/models/privacy/individual_enumeration_test.py',
    'tests/models/privacy/individual_test.py',
    'tests/models/privacy/mechanism_test.py',
    'tests/models/privacy/narrowed_enumeration_test.py',
    'tests/models/sampling/decoder_source_test.py',
    'tests/models/sampling/nucleus_test.py',
    'tests/pipeline/canary_audit_test.py',
    'tests/pipeline/commands/start_test.py',
    'tests/pipeline/comparison_test.py',
    'tests/pipeline/evaluation/holdout_test.py',
    'tests/pipeline/evaluation/in_context_test.py',
    'tests/pipeline/evaluation/mauve_score_test.py',
    'tests/pipeline/evaluation/use_test.py',
    'tests/pipeline/ledger/released_test.py',
    'tests/pipeline/methods/follows_test.py',
    'tests/pipeline/pages/report_page_test.py',
    'tests/pipeline/pages/signer_test.py',
    'tests/transforms/read/rules_test.py',
})  # fmt: skip
