"""A walk takes the steps of the compiled loop: what it shows before each token is what decided it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.constraints import Vocabulary
from models.generate import walk as walks
from models.generate.examples import split_examples
from models.generate.loop import decode_stream
from models.privacy import mechanism, sparse_vector
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import samples
from tests.models.generate import table

STOP = StopRule.of(table.VOCAB, tokens={0})
PARAMS = MechanismParams(
    batch_size=4, clip_bound=3.0, temperature=1.5, max_private_tokens=20, max_batch_tokens=30,
    max_example_tokens=5,
)  # fmt: skip
SPARSE = dataclasses.replace(PARAMS, threshold=0.7, threshold_noise_scale=0.2)


@pytest.mark.parametrize('params', [PARAMS, SPARSE], ids=['private', 'sparse vector'])
def test_a_walk_sees_what_every_token_was_chosen_from(params: MechanismParams) -> None:
    """Seven contexts in two micro-batches; examples that a stop token and that the length cap ends."""
    decoder, contexts = table.DECODERS[4], table.contexts_of(7)
    draws = table.draws_of(params, 0)
    public = samples.public_rows(decoder, table.PUBLIC, params)
    constraint = Vocabulary.of(np.array([1, 1, 0, 1, 1], bool))
    stream = decode_stream(
        decoder, public, contexts, params=params, draws=draws, constraint=constraint, stop_rule=STOP
    )
    words = np.stack([draws.token_words >> np.uint64(32), draws.token_words & np.uint64(2**32 - 1)], axis=-1)
    choose = jax.jit(mechanism.choose_token, static_argnames='params')
    walk = walks.walk(decoder, public, contexts, params=params, constraint=constraint, stop_rule=STOP)
    position, private, places = next(walk), 0, []
    for index, token in enumerate(stream.tokens.tolist()):
        assert position.mask.tolist() == [True, True, False, True, True]
        assert position.logits.shape == (7, decoder.vocab_size)
        assert position.public_logits.any() == params.needs_public_logits
        rows = (
            [position.public_logits, *position.logits] if params.needs_public_logits else [*position.logits]
        )
        is_private = jnp.arange(len(rows)) >= len(rows) - 7
        votes = samples.tally((jnp.asarray(np.stack(rows)),), (is_private,), params, position.mask)
        chosen, flag = choose(
            votes,
            sparse_vector.limbs(draws.threshold_noise[private]),
            sparse_vector.limbs(draws.distance_noise[index]),
            jnp.asarray(words[index], jnp.uint32),
            params=params,
        )
        assert (int(chosen), bool(flag)) == (token, stream.is_private[index])
        private += int(flag)
        places.append((position.example, position.place))
        position = walk.send(token)
    lengths = [example.private_tokens + example.public_tokens for example in split_examples(
        stream, stop_rule=STOP, max_example_tokens=params.max_example_tokens
    )]  # fmt: skip
    assert places == [(example, place) for example, length in enumerate(lengths) for place in range(length)]
    assert len(lengths) > 2 and len(set(lengths)) > 1
