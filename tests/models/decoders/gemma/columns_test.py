"""With `public_top_k` the compiled loop of a real decoder holds no logits of all rows and all columns.

Shapes are read from the optimized program that runs. The vocabulary has a prime number of tokens, so
that no other array of the program has that dimension by chance.
"""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.constraints import Vocabulary
from models.decoders.decoder import Shapes
from models.decoders.gemma import library
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.decoder import TransformerDecoder
from models.generate import loop
from models.generate.loop import decode_stream
from models.privacy import candidates, sampling
from models.privacy.aggregates import AGGREGATES
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import samples
from tests.contracts import decoder_contract
from tests.models.decoders.gemma.decoder_test import GEMMA2
from tests.models.decoders.gemma.library_models import parameter_shapes

pytestmark = pytest.mark.heavy

VOCAB, K, ROWS = 211, 20, 4
ARCHITECTURE = dataclasses.replace(GEMMA2, num_embed=VOCAB)
PARAMS = MechanismParams(
    batch_size=4, clip_bound=2.0, temperature=1.5, max_private_tokens=5, max_batch_tokens=5,
    max_example_tokens=4, public_top_k=K,
)  # fmt: skip


@functools.cache
def _decoder() -> TransformerDecoder:
    rng = np.random.default_rng(0)
    parameters = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32),
        parameter_shapes(ARCHITECTURE),
    )
    shapes = Shapes(max_prompt_tokens=6, max_example_tokens=4, micro_batch_size=ROWS)
    weights = library.to_weights(ARCHITECTURE, parameters, Place('float32'))
    return TransformerDecoder(ARCHITECTURE, weights, shapes=shapes)


def _program(params: MechanismParams, monkeypatch: pytest.MonkeyPatch) -> str:
    """The optimized program of one batch's loop, which has run: five contexts, two micro-batches."""
    decoder, real, programs = _decoder(), loop._run_loop, []

    def compiled(*arguments: object, **settings: object) -> object:
        programs.append(real.lower(*arguments, **settings).compile().as_text())
        return real(*arguments, **settings)

    monkeypatch.setattr(loop, '_run_loop', compiled)
    rows = decoder_contract.prompts(VOCAB, 6, longest=6)
    levels = sampling.tree_levels(candidates.count(params.public_top_k, VOCAB))
    stream = decode_stream(
        decoder,
        samples.public_rows(decoder, rows[0], params),
        rows[1:],
        params=params,
        draws=samples.batch_draws(params, levels),
        constraint=Vocabulary.of(np.arange(VOCAB) > 4),
        stop_rule=StopRule.of(VOCAB, tokens={8}),
    )
    assert len(stream.tokens) == params.max_batch_tokens and (stream.tokens > 4).all()
    (program,) = set(programs)  # of every stretch
    return program


def _logits_of_all(program: str) -> set[tuple[int, ...]]:
    """Shapes that have a column for each token, of more than one row, but the embedding itself."""
    found = {tuple(map(int, shape.split(','))) for shape in re.findall(r'\[(\d+(?:,\d+)*)\]', program)}
    wide = {shape for shape in found if VOCAB in shape}
    assert (VOCAB, ARCHITECTURE.embed_dim) in wide and any(math.prod(shape) == VOCAB for shape in wide)
    return {s for s in wide if math.prod(s) not in (VOCAB, VOCAB * ARCHITECTURE.embed_dim)}


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
def test_no_array_of_the_loop_has_all_rows_and_all_columns(
    aggregate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidates' columns instead; the whole matrix is found where it is wanted."""
    params = dataclasses.replace(PARAMS, aggregate=aggregate)
    program = _program(params, monkeypatch)
    assert not _logits_of_all(program)
    count = candidates.count(K, VOCAB)
    assert count < VOCAB and f'[{ROWS},{count}]' in program


@pytest.mark.parametrize(
    'changes', [{'public_top_k': None}, {'threshold': 0.5, 'threshold_noise_scale': 0.2}]
)
def test_the_whole_matrix_would_be_found(changes: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program(dataclasses.replace(PARAMS, **changes), monkeypatch)
    assert any(ROWS in shape for shape in _logits_of_all(program))
