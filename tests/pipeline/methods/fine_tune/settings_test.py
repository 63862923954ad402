"""Settings of fine-tuning beside those of other methods."""

import pytest

from pipeline.asked.config import job_config, settings_of
from pipeline.methods.fine_tune.settings import INSTEAD


def test_it_says_what_to_give_in_place_of_each_setting_that_it_lacks() -> None:
    assert INSTEAD.keys() == settings_of('predict').keys() - settings_of('fine-tune').keys()


@pytest.mark.parametrize('name', INSTEAD)
def test_advice_stands_in_the_error(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        job_config(method='fine-tune', epsilon=1.0, records=1000, **{name: object()})
    assert f"Expected no {name} with method='fine-tune', got {name}=" in str(caught.value)
    assert str(caught.value).endswith(f' {INSTEAD[name]} Leave it out.')
