"""The settings that name a path; a schedule's form leaves those to whoever deploys it."""

from pipeline.asked.config import path_settings


def test_what_takes_any_text_counts_as_a_path_until_it_says_otherwise() -> None:
    assert path_settings() == {
        # A query chooses what is read, and of some servers files.
        'input', 'query', 'centers', 'embedder', 'ledger', 'prompt', 'schema', 'json_schema', 'checkpoint',
        'tokenizer', 'output', 'work_dir', 'reference', 'adapter', 'start', 'corpus',
        'warm_start', 'compilation_cache',
        # The endpoint is as much the deployer's as the place of texts.
        'endpoint',
    }  # fmt: skip
