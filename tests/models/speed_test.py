"""The speed of a process, from the pieces of work that it did."""

import pytest

from models import speed


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    speed.forget()


def test_the_seconds_of_a_token_are_a_median_in_two_digits_without_the_first_piece() -> None:
    for tokens, seconds in ((10, 500.0), (10, 1.0), (100, 12.34), (10, 90.0)):
        speed.note('decoding', tokens, seconds)
    assert speed.seconds_of_token() == {'decoding': 0.12}


def test_the_first_piece_alone_and_a_piece_without_tokens_say_nothing() -> None:
    speed.note('training', 10, 500.0)
    speed.note('training', 0, 1.0)
    assert speed.seconds_of_token() == {}
