"""Tests that may take longer than 20 seconds of quiet cores, each with the reason: see tests/conftest.py."""

REASONS: dict[str, str] = {
    'tests/launch/flink/run_test.py::test_on_flink_the_corpus_is_the_local_one_whatever_is_killed': (
        'A real cluster starts, runs the job, loses a worker in the middle of it, and runs the rest: one '
        'run of each kind is the least that shows it.'
    ),
    'tests/launch/flink/run_test.py::test_on_flink_fine_tuning_gives_the_local_adapter_and_the_local_texts': (  # noqa: E501
        'A real cluster trains and samples, and beside it this process does, to the same bytes.'
    ),
    'tests/launch/flink/worker_pool_test.py::test_a_run_whose_workers_were_killed_goes_on_to_the_same_corpus': (  # noqa: E501
        'A real cluster loses its workers in the middle of a run, and the run goes on.'
    ),
    'tests/launch/demo/demo_test.py::test_without_the_weights_it_says_so_and_goes_on': (
        'It is the demo as a new user runs it, in processes of its own, from the records to the pages.'
    ),
    'tests/notebooks_test.py::test_the_quickstart_runs_to_its_end': (
        'It is the notebook as a new user runs it, in a kernel of its own, from records to evaluation.'
    ),
    'tests/models/sampling/decoder_source_test.py::test_a_model_of_google': (
        'It loads Gemma 3 270M and compiles the loop for 262,144 tokens, which no smaller model does.'
    ),
}
