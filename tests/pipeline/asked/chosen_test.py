"""The method of a run that names none: what `plan --compare` would choose, as far as no machine decides."""

import pathlib
from typing import Any

import pytest

from models import cache
from pipeline.asked.chosen import chosen
from pipeline.asked.config import job_config
from pipeline.plan.comparison import compare

LABELS = {'label_field': 'label', 'labels': tuple(f'l{number}' for number in range(77))}


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize(
    ('given', 'name'),
    [
        ({'records': 380}, 'predict'),
        ({'records': 390}, 'tune-refine'),
        ({'records': 5000}, 'tune-refine'),
        ({'records': 10_003, **LABELS}, 'tune-refine'),
        # A tenth of many is few.
        ({'records': 3000, 'sample_rate': 0.1}, 'predict'),
    ],
)
def test_declared_numbers_choose_as_a_comparison_does(
    given: dict[str, Any], name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No run has told how fast this machine is, which a comparison heeds.
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    config, why = chosen(None, {'epsilon': 1.0, **given})
    assert config.method.name == name == compare({'epsilon': 1.0, **given}).recommended
    assert why is not None and f': {name} is taken. ' in why


@pytest.mark.parametrize(
    'given',
    [
        # Named, or implied by a setting.
        {'method': 'predict', 'records': 5000},
        # A setting that one method alone has.
        {'batch_size': 64, 'records': 5000},
    ],
)
def test_who_names_a_method_or_a_setting_of_one_gets_it(given: dict[str, Any]) -> None:
    config, why = chosen(None, {'epsilon': 1.0, **given})
    assert why is None and config == job_config(epsilon=1.0, **given)


def test_without_a_declared_number_votes_on_tokens_are_taken() -> None:
    config, why = chosen(None, {'epsilon': 1.0, 'delta': 1e-6})
    assert config.method.name == 'predict' and why is not None


def test_a_request_that_no_method_fits_is_refused_as_of_the_default() -> None:
    with pytest.raises(ValueError, match='either epsilon or context_budget'):
        chosen(None, {})
