"""The audit where examples have a structure: exact log ratios on the mask, free forced tokens, broken twins.

The model is the table of `tests/models/generate/table.py` over the bundled vocabulary, and every text is
one of a few. Keys are fixed, so every test is deterministic.
"""

import dataclasses
import itertools
import typing

import numpy as np
import pytest

from models import bundled, prompt_templates, prompts, records
from models.audits import leave_one_out, replay, spelling
from models.decoders.gemma import tokenizer
from models.generate.batch import BatchGenerator
from models.generate.stream import TokenStream
from models.grammars.structure import Structure
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles
from tests.models.audits.leave_one_out_test import INDIVIDUAL, KEY, OTHERS, contexts, with_params
from tests.models.generate import table as tables

COLOURS, THINGS, ENDS = ('red', 'blue', 'bright green'), ('ball', 'shirt', 'cup', 'cart'), ('', ' and old')
VALID = {
    f'A {colour} {thing}{end}.'.encode() for colour, thing, end in itertools.product(COLOURS, THINGS, ENDS)
}
PREFIXES = {text[:length] for text in VALID for length in range(len(text) + 1)}
PATTERN = rf'A ({"|".join(COLOURS)}) ({"|".join(THINGS)})( and old)?\.'
# One that has not the structure among them.
HELD = ('A red ball.', 'A blue cup.', 'Nothing of the kind', 'A bright green cart and old.', 'A red shirt.')
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=60,
    max_example_tokens=24,
)  # fmt: skip
SPARSE = {'threshold': 0.6, 'threshold_noise_scale': 0.3}
MECHANISMS: dict[str, dict[str, typing.Any]] = {
    'mean': {},
    'mean, top 3': {'public_top_k': 3},
    'sparse vector': SPARSE,
    'sparse vector, top 4': {**SPARSE, 'public_top_k': 4},
    'median': {'aggregate': 'median'},
    'difference': {'aggregate': 'difference', 'clip_bound': 1.5},
    'difference, top 4': {'aggregate': 'difference', 'clip_bound': 1.5, 'public_top_k': 4},
}
ACCOUNTED = INDIVIDUAL | {'public_top_k': 300, 'max_batch_tokens': 40}


@pytest.fixture(scope='module')
def generator() -> BatchGenerator:
    vocabulary = tokenizer.GemmaTokenizer(bundled.TOKENIZER, 3)
    writer = prompts.PromptWriter(
        template=prompt_templates.read_template('instruction'), tokenizer=vocabulary, max_prompt_tokens=200,
        structure=Structure(regex=PATTERN),
    )  # fmt: skip
    table = tables.table_of(11, vocabulary.vocab_size)
    return BatchGenerator(
        decoder=tables.TableDecoder(table, micro_batch_size=8, max_example_tokens=24),
        writer=writer,
        params=PARAMS,
        run_id='audit',
    )


def batch(texts: typing.Sequence[str] = HELD) -> records.Batch:
    return records.Batch(batch_id=records.BatchId(group=0, index=0), label='sports', contexts=contexts(texts))


def log_probability(
    generator: BatchGenerator, held: typing.Sequence[records.Context], stream: TokenStream
) -> float:
    """Exact log-probability of a whole output under a batch, by the slow twins."""
    params, writer = generator.params, generator.writer
    table, stop = np.asarray(generator.decoder.weights), writer.tokenizer.stop_tokens
    types = [tables.type_of(p) for p in writer.private_prompts('sports', held)]
    public_type = tables.type_of(writer.public_prompt('sports'))
    settings = dataclasses.replace(oracles.Mechanism.of(params, stop), narrows=True)
    released = frozenset(np.flatnonzero(writer.released_tokens(table.shape[-1])).tolist())
    masks = oracles.grammar(
        PREFIXES.__contains__, VALID.__contains__, writer.tokenizer.token_bytes(), released, stop
    )
    total, below, example, state = 0.0, list[float](), tuple[int, ...](), tables.STATES
    for token, is_private, is_chosen in zip(stream.tokens.tolist(), stream.is_private, stream.is_chosen):
        if is_chosen:
            logits, public, mask = (
                table[np.array(types, int), state],
                table[public_type, state],
                masks(example),
            )
            assert mask[token] and mask.sum() > 1
            allowed = settings.allowed(public, mask)
            scores = settings.private_scores(logits, public, mask) if is_private else public / 1.5
            total += oracles.log_softmax(np.where(allowed, scores, -1e9).astype(np.float64))[token]
            if params.threshold is not None:
                d = float(settings.distance(logits, public, mask))
                if is_private:
                    total += oracles.log_run_probability(below, [d], params.threshold, settings)
                below = [] if is_private else [*below, d]
        ended = token in stop or len(example) + 1 == params.max_example_tokens
        state = tables.STATES if ended else tables.next_state(state, token, len(example))
        example = () if ended else (*example, token)
    if below:
        assert params.threshold is not None
        total += oracles.log_run_probability(below, [], params.threshold, settings)
    return total


@pytest.mark.parametrize('name', MECHANISMS)
def test_log_ratios_are_those_of_the_exact_distribution_on_the_mask(
    generator: BatchGenerator, name: str
) -> None:
    found = with_params(generator, public_temperature=1.5, **MECHANISMS[name])
    held, others = contexts(HELD), contexts(OTHERS)[:2]
    result = leave_one_out.leave_one_out(found, batch(), KEY, outsiders=others)
    stream = found.decode(batch(), found.draws(batch(), KEY))
    forced = int((~stream.is_chosen).sum())
    assert result.ok and result.forced_tokens == forced > 3
    assert result.public_tokens == len(stream.tokens) - forced - stream.is_private.sum()
    assert (result.public_tokens > 0) == ('threshold' in MECHANISMS[name])
    whole = log_probability(found, held, stream)
    removed = [whole - log_probability(found, held[:i] + held[i + 1 :], stream) for i in range(len(held))]
    np.testing.assert_allclose(result.removed, removed, rtol=1e-4, atol=1e-5)
    added = [log_probability(found, (*held, other), stream) - whole for other in others]
    np.testing.assert_allclose(result.added, added, rtol=1e-4, atol=1e-5)
    assert result.empirical_epsilon > 0.01


def test_a_replay_that_does_not_narrow_is_noticed(
    generator: BatchGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_params(generator, public_temperature=1.5, **SPARSE)
    right = leave_one_out.leave_one_out(found, batch(), KEY)
    monkeypatch.setattr(replay.Case, 'narrows', False)
    wrong = leave_one_out.leave_one_out(found, batch(), KEY)
    assert np.abs(np.subtract(right.removed, wrong.removed)).max() > 1e-3


def test_forced_tokens_are_neither_voted_on_nor_paid_for(generator: BatchGenerator) -> None:
    found = with_params(generator, **ACCOUNTED)
    for number in range(5):
        key = RunKey(bytes([number]) * 32)
        result = leave_one_out.leave_one_out(found, batch(), key, outsiders=contexts(OTHERS))
        assert result.ok and result.forced_tokens > 3, number
        assert result.private_tokens + result.forced_tokens == 40 and result.public_tokens == 0
    assert any(payment.paid > 0 for payment in result.payments)


@pytest.mark.parametrize('name', [*MECHANISMS, 'individual'])
def test_a_text_that_is_pasted_is_found(generator: BatchGenerator, name: str) -> None:
    settings = ACCOUNTED if name == 'individual' else MECHANISMS[name]
    found = with_params(generator, public_temperature=1.5, **settings)
    case = replay.Case.of(found, batch(), sabotage='paste')
    text = case.decode(found.draws(batch(), KEY)).tokens.tolist()
    pieces = found.writer.tokenizer.token_bytes()
    # A public token goes its own way.
    if found.params.threshold is None:
        assert b''.join(pieces[token] for token in text).startswith(HELD[0].encode())
    assert not leave_one_out.leave_one_out(found, batch(), KEY, sabotage='paste').ok


@pytest.mark.parametrize('sabotage', ['no-clipping', *replay.INDIVIDUAL])
def test_a_broken_mechanism_is_found(generator: BatchGenerator, sabotage: replay.Sabotage) -> None:
    found = with_params(generator, public_temperature=1.5, **ACCOUNTED)
    assert not leave_one_out.leave_one_out(found, batch(), KEY, sabotage=sabotage).ok


def test_a_text_is_spelled_in_the_tokens_that_are_allowed(generator: BatchGenerator) -> None:
    pieces, constraint = generator.writer.tokenizer.token_bytes(), generator.constraint()
    for text in VALID:
        ids = spelling.spell(text, constraint, pieces)
        assert b''.join(pieces[token] for token in ids.tolist()) == text
    assert len(spelling.spell(b'A red dog.', constraint, pieces)) == 0
