"""No setting drops out of the report: each is shown there, or named as one that is not."""

import collections
from collections.abc import Collection

import pytest

from pipeline.asked.config import settings_of
from pipeline.methods import METHODS
from pipeline.methods.evolve import report as evolve
from pipeline.methods.fine_tune import report as fine_tune
from pipeline.methods.predict import report as predict
from pipeline.methods.tune_refine import report as tune_refine

# Paths, addresses and what the report says elsewhere, or what settings that are shown follow from.
HIDDEN = frozenset({
    'input', 'query', 'partition_column', 'sheet', 'split', 'output', 'work_dir', 'checkpoint', 'tokenizer',
    'schema', 'json_schema', 'run_id', 'delta', 'dataset', 'ledger', 'method', 'runner', 'accelerator',
    'compilation_cache',
    'device_hour_price',
})  # fmt: skip
OF_VOTING = {'start', 'adapter', 'endpoint', 'endpoint_requests', 'endpoint_token', 'typical_words'}
OF_METHOD: dict[str, tuple[tuple[str, ...], Collection[str]]] = {
    'predict': (predict.SHOWN, HIDDEN | {'adapter', 'centers', 'reference', 'examples', 'typical_words'}),
    'fine-tune': (fine_tune.SHOWN, HIDDEN | {'adapter', 'warm_start', 'typical_words'}),
    'tune-refine': (tune_refine.SHOWN, HIDDEN | {'typical_words'}),
    'evolve': (evolve.SHOWN, HIDDEN | OF_VOTING),
    'refine': (evolve.SHOWN_OF_REFINING, (HIDDEN | {'corpus'}) - {'schema', 'json_schema'}),
}


def test_every_method_is_looked_at() -> None:
    assert OF_METHOD.keys() == METHODS.keys()


@pytest.mark.parametrize('method', OF_METHOD)
def test_every_setting_is_shown_or_hidden_and_none_is_both(method: str) -> None:
    shown, hidden = OF_METHOD[method]
    assert set(shown) | set(hidden) == settings_of(method).keys()
    assert not set(shown) & set(hidden)
    assert max(collections.Counter(shown).values()) == 1
