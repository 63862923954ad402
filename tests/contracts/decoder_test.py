"""Every registered family keeps the contract, by the model that ships with it; so does a table of logits."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders import family
from models.decoders.decoder import Cache, Decoder, Shapes, Weights
from tests import samples
from tests.contracts import decoder_contract
from tests.contracts.decoder_contract import DecoderCase, TokenizerCase, TunableCase

pytestmark = pytest.mark.heavy

STATES, VOCAB = 97, 96


class TableDecoder(Decoder):
    """The smallest language model: a text is a state, a number of 97, and a state has logits.

    Args:
        shapes: The public shapes.
        wrong: Its fault against the contract: rows that move with the others ('rows'), an example that
            goes on from the one before ('start'), steps that take in what lies behind their tokens
            ('behind'), one place for rows that have their own ('places'), logits of some columns that are
            not those columns' ('columns'), or that move with the other rows ('rows of columns').
    """

    def __init__(self, shapes: Shapes, wrong: str = '') -> None:
        self.shapes, self.vocab_size, self._wrong = shapes, VOCAB, wrong
        self.weights = jnp.asarray(np.random.default_rng(0).normal(0, 2, (STATES, VOCAB)), jnp.float32)

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        ends = np.zeros(len(prompts), np.int32)
        for row, prompt in enumerate(prompts):
            for token in prompt:
                ends[row] = _next(ends[row], token)
        if self._wrong == 'rows':
            ends = (ends + ends.sum()) % STATES
        parts = [jnp.asarray(part) for part in ends.reshape(-1, together or self.shapes.micro_batch_size)]
        cache = tuple({'end': part, 'state': jnp.copy(part)} for part in parts)
        return tuple(part[:, None] for part in parts), cache

    def append(
        self,
        weights: jax.Array,
        cache: tuple[Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        if self._wrong == 'places':
            offset = jnp.max(offset)
        again = offset == 0 if self._wrong != 'start' else jnp.bool_(False)
        begun = tuple(jnp.where(again, part['end'], part['state']) for part in cache)
        states = jax.lax.fori_loop(
            0,
            tokens.shape[-1] if self._wrong == 'behind' else count,
            lambda place, states: tuple(_next(state, tokens[..., place]) for state in states),
            begun,
        )
        kept = tuple({**part, 'state': state} for part, state in zip(cache, states, strict=True))
        return tuple(state[:, None] for state in states), kept

    def logits(self, weights: jax.Array, states: jax.Array, columns: jax.Array | None = None) -> jax.Array:
        rows = weights[states[:, 0]]
        if columns is None:
            return rows
        if self._wrong == 'rows of columns':
            rows = rows + 1e-7 * states.sum()
        return rows[:, jnp.sort(columns) if self._wrong == 'columns' else columns]


def _next(state, token):  # type: ignore[no-untyped-def] # NumPy or JAX
    return (5 * state + 3 * token + 1) % STATES


def _shipped_model(of: family.Family) -> str:
    for model in of.models:
        if of.known_files(model) is not None:
            return model
    raise ValueError(f'Expected a family that ships a small model, got none of family={of.name!r}. Add one.')


@functools.cache
def _decoder(name: str, shapes: Shapes) -> Decoder:
    if name == 'table':
        return TableDecoder(shapes)
    model = _shipped_model(family.FAMILIES[name])
    files = family.files_of(model)
    return family.FAMILIES[name].load_decoder(model, files.checkpoint, shapes=shapes, dtype='float32')


@functools.cache
def _tokenizer(name: str) -> TokenizerCase:
    model = _shipped_model(family.FAMILIES[name])
    tokenizer = family.FAMILIES[name].load_tokenizer(model, family.files_of(model).tokenizer)
    return TokenizerCase(tokenizer=tokenizer, num_embed=family.sizes_of(model).num_embed)


@pytest.mark.parametrize('assert_kept', decoder_contract.DECODER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', samples.with_first(['table', *family.FAMILIES], 'table'))
def test_decoder(name: str, assert_kept: Callable[[DecoderCase], None]) -> None:
    assert_kept(DecoderCase(load=functools.partial(_decoder, name)))


@pytest.mark.parametrize('assert_kept', decoder_contract.TUNABLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', family.FAMILIES)
@pytest.mark.parametrize('rank', [2, None])
def test_tunable(name: str, rank: int | None, assert_kept: Callable[[TunableCase], None]) -> None:
    model = _shipped_model(family.FAMILIES[name])
    checkpoint = family.files_of(model).checkpoint
    assert_kept(TunableCase(family=family.FAMILIES[name], model=model, checkpoint=checkpoint, rank=rank))


@pytest.mark.first
@pytest.mark.parametrize('assert_kept', decoder_contract.TOKENIZER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', family.FAMILIES)
def test_tokenizer(name: str, assert_kept: Callable[[TokenizerCase], None]) -> None:
    assert_kept(_tokenizer(name))


@pytest.mark.first
@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        ('rows', decoder_contract.check_a_row_does_not_move_with_the_other_rows),
        ('rows', decoder_contract.check_steps_equal_longer_prompts),
        ('start', decoder_contract.check_every_example_starts_from_the_prompts_end),
        ('behind', decoder_contract.check_steps_of_several_tokens_equal_single_ones),
        ('rows', decoder_contract.check_a_row_does_not_move_in_steps_of_several_tokens),
        ('places', decoder_contract.check_rows_at_their_own_places_are_those_of_one_place),
        ('rows', decoder_contract.check_a_row_takes_another_prompt),
        ('columns', decoder_contract.check_columns_are_those_of_all_logits),
        ('rows of columns', decoder_contract.check_a_row_does_not_move_with_the_other_rows),
    ],
)
def test_a_decoder_that_breaks_the_contract_is_found(
    wrong: str, check: Callable[[DecoderCase], None]
) -> None:
    with pytest.raises(AssertionError):
        check(DecoderCase(load=functools.partial(TableDecoder, wrong=wrong)))


class _Shifted(Decoder):
    """A decoder whose steps of several tokens stand one place too late."""

    def __init__(self, inner: Decoder) -> None:
        self.shapes, self.vocab_size, self.weights = inner.shapes, inner.vocab_size, inner.weights
        self._inner = inner

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        return self._inner.prefill(prompts, together=together)

    def append(
        self,
        weights: Weights,
        cache: tuple[Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        return self._inner.append(weights, cache, tokens, count, offset + (count > 1))

    def logits(self, weights: Weights, states: jax.Array, columns: jax.Array | None = None) -> jax.Array:
        return self._inner.logits(weights, states, columns)


@pytest.mark.parametrize('name', family.FAMILIES)
def test_a_model_whose_steps_stand_elsewhere_is_found(name: str) -> None:
    """By numbers that are those of neighbouring places, far beyond the tolerance."""
    case = DecoderCase(load=lambda shapes: _Shifted(_decoder(name, shapes)))
    with pytest.raises(AssertionError, match='Mismatched elements'):
        decoder_contract.check_steps_of_several_tokens_equal_single_ones(case)
