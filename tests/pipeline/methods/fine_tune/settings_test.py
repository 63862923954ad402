"""Settings of fine-tuning beside those of other methods."""

import pytest

from pipeline.asked.config import job_config
from pipeline.methods.fine_tune.settings import INSTEAD


@pytest.mark.parametrize('name', INSTEAD)
def test_advice_stands_in_the_error(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        job_config(method='fine-tune', epsilon=1.0, records=1000, **{name: object()})
    assert f"Expected no {name} with method='fine-tune', got {name}=" in str(caught.value)
    assert str(caught.value).endswith(f' {INSTEAD[name]} Leave it out.')
