"""On real weights: what a context pays is a function of its own text and the released prefix, bit by bit."""

import pathlib

import numpy as np
import pytest

from models import fetched
from models.constraints import Vocabulary
from models.decoders import family
from models.decoders.decoder import Decoder, Shapes
from models.generate.loop import decode_stream
from models.generate.rows import prefill_public
from models.generate.stream import TokenStream
from models.privacy import candidates, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import samples

pytestmark = pytest.mark.heavy

ROWS, PROMPT_TOKENS, TOKENS = 4, 16, 6
PARAMS = MechanismParams(
    aggregate='difference', accounting='individual', batch_size=4, clip_bound=1.0, shift_bound=0.5,
    temperature=1.0, context_budget=0.05, omega=8.0, public_top_k=64, max_batch_tokens=TOKENS,
    max_example_tokens=3,
)  # fmt: skip


@pytest.fixture(scope='module')
def model(gemma_file: pathlib.Path) -> Decoder:
    shapes = Shapes(max_prompt_tokens=PROMPT_TOKENS, max_example_tokens=3, micro_batch_size=ROWS)
    return family.family_of(fetched.MODEL).load_decoder(
        fetched.MODEL, gemma_file, shapes=shapes, dtype='float32'
    )


def prompts(rng: np.random.Generator, vocab: int, count: int) -> list[np.ndarray]:
    """Random token ids of random lengths, after the token that begins a text."""
    lengths = rng.integers(3, PROMPT_TOKENS, count)
    return [np.append(2, rng.integers(100, vocab // 2, length)).astype(np.int32) for length in lengths]


def decode(model: Decoder, private: list[np.ndarray], draw: int) -> TokenStream:
    vocab = model.vocab_size
    reference = prompts(np.random.default_rng(0), vocab, 2)
    levels = sampling.tree_levels(candidates.count(PARAMS.public_top_k, vocab))
    return decode_stream(
        model,
        prefill_public(model, reference),
        private,
        params=PARAMS,
        draws=samples.batch_draws(PARAMS, levels, batch_id=f'0000-{draw:06}'),
        constraint=Vocabulary.of(np.arange(vocab) > 4),
        stop_rule=StopRule.of(vocab, tokens={1}),
    )


def test_spending_hangs_on_no_other_text_given_the_released_prefix(model: Decoder) -> None:
    """Two contexts stay, and the others are other texts, and fewer; over several draws."""
    rng = np.random.default_rng(1)
    stays = prompts(rng, model.vocab_size, 2)
    compared, silent = 0, False
    for draw in range(3):
        batches = [[*stays, *prompts(rng, model.vocab_size, count)] for count in (2, 2, 0)]
        first, *others = (decode(model, batch, draw) for batch in batches)
        for other in others:
            differ = np.flatnonzero(first.tokens != other.tokens)
            # At a token where two streams part, contexts have still seen the same.
            end = TOKENS if len(differ) == 0 else int(differ[0]) + 1
            for found, same in zip(first.spending, other.spending, strict=True):
                assert found[:end, :2].tobytes() == same[:end, :2].tobytes()
            compared += end
        assert (first.spending.charged[:, :2] > 0).any()
        silent |= not first.spending.voted[:, :2].all()
    assert compared > 3 * TOKENS and silent


def test_the_comparison_tells_texts_apart(model: Decoder) -> None:
    """Another text of one's own pays otherwise at the first token, where not both lack the means."""
    one, other = (
        decode(model, prompts(np.random.default_rng(seed), model.vocab_size, 2), 0) for seed in (2, 3)
    )
    assert (one.spending.charged[0] != other.spending.charged[0]).any()
