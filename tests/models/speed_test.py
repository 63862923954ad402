"""The speed of a process, from the pieces of work that it did."""

import jax
import jax.numpy as jnp
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


def test_the_time_of_a_worker_adds_up_and_compiling_is_nothing_else() -> None:
    with speed.measured('loading'):
        pass
    with speed.measured('decoding'):
        # A function that no earlier test compiled; the second call reads it from memory.
        program = jax.jit(lambda x: jnp.tanh(x @ x).sum())
        for _ in range(2):
            program(jnp.ones((7, 7))).block_until_ready()
    speed.note('decoding', 30, 1.0)
    speed.note('decoding', 12, 1.0)
    found = speed.worker_time()
    parts = (
        found.loading_seconds, found.compiling_seconds, found.training_seconds, found.embedding_seconds,
        found.decoding_seconds, found.waiting_seconds,
    )  # fmt: skip
    assert sum(parts) == pytest.approx(found.elapsed_seconds)
    assert all(seconds > 0 for seconds in (found.loading_seconds, *parts[1:2], found.decoding_seconds))
    assert found.training_seconds == found.embedding_seconds == 0
    assert found.programs >= 1 and (found.decoding_tokens, found.training_tokens) == (42, 0)
    assert (found.device, found.devices) == ('processor', 1) and found.peak_bytes > 2**20


def test_another_run_of_the_process_begins_at_nothing_under_another_name() -> None:
    with speed.measured('training'):
        pass
    speed.note('training', 10, 1.0)
    name = speed.worker_name()
    speed.forget()
    found = speed.worker_time()
    assert found.training_seconds == 0 and found.training_tokens == 0 and found.programs == 0
    assert speed.worker_name() != name
