"""No setting drops out of the report: each is shown there, or named as one that is not."""

import collections
from collections.abc import Collection

import pytest

from pipeline.asked.config import settings_of
from pipeline.methods import METHODS
from pipeline.methods.evolve import report as evolve
from pipeline.methods.fine_tune import report as fine_tune
from pipeline.methods.predict import report as predict

OF_METHOD: dict[str, tuple[tuple[str, ...], Collection[str]]] = {
    'predict': (predict.SHOWN, predict.HIDDEN),
    'fine-tune': (fine_tune.SHOWN, fine_tune.HIDDEN),
    'evolve': (evolve.SHOWN, evolve.HIDDEN),
    'refine': (evolve.SHOWN_OF_REFINING, evolve.HIDDEN_OF_REFINING),
}


def test_every_method_is_looked_at() -> None:
    assert OF_METHOD.keys() == METHODS.keys()


@pytest.mark.parametrize('method', OF_METHOD)
def test_every_setting_is_shown_or_hidden_and_none_is_both(method: str) -> None:
    shown, hidden = OF_METHOD[method]
    assert set(shown) | set(hidden) == settings_of(method).keys()
    assert not set(shown) & set(hidden)
    assert max(collections.Counter(shown).values()) == 1
