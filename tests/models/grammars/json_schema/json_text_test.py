"""JSON is read without loss."""

from decimal import Decimal

import pytest

from models.grammars.json_schema import json_text


def test_a_file_is_read_as_decimals_and_without_double_keys() -> None:
    assert json_text.read('{"minimum":0.1}') == {'minimum': Decimal('0.1')}
    with pytest.raises(ValueError, match='got NaN'):
        json_text.read('{"minimum":NaN}')
    with pytest.raises(ValueError, match="key='a' twice"):
        json_text.read('{"a":1,"a":2}')
