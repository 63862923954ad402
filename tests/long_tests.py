"""Tests that may take longer than 20 seconds, each with the reason; every other one fails that does."""

REASONS: dict[str, str] = {
    'tests/launch/flink/run_test.py::test_on_flink_the_corpus_is_the_local_one_whatever_is_killed': (
        'A real cluster starts, runs the job, loses a worker in the middle of it, and runs the rest: one '
        'run of each kind is the least that shows it.'
    ),
}
