"""A batch becomes examples: prompts, draws under its name, the stream of the twin, its cuts, its counts."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from models import activity, bundled, prompt_templates, prompts, records, speed
from models.constraints import register
from models.decoders.gemma import tokenizer
from models.generate.batch import BatchGenerator
from models.grammars.structure import Structure
from models.privacy import randomness, sampling, sparse_vector
from models.privacy.randomness import RunKey
from tests import oracles
from tests.dummies.rising import RisingMask, registered
from tests.models.generate.table import SPARSE, STATES, TableDecoder, next_state, table_of, type_of

pytestmark = pytest.mark.heavy

LABEL = 'sports'


@pytest.fixture(scope='module')
def generator() -> BatchGenerator:
    """The real prompt writer over the bundled vocabulary, and a table that likes to stop."""
    path = bundled.TOKENIZER
    vocabulary = tokenizer.GemmaTokenizer(path, '3')
    writer = prompts.PromptWriter(
        template=prompt_templates.read_template('instruction'), tokenizer=vocabulary, max_prompt_tokens=200
    )
    table = table_of(11, vocabulary.vocab_size)
    table[:, :, sorted(writer.tokenizer.stop_tokens)] += 6
    table[:, :, writer.tokenizer.special_tokens.pad] += 50  # never released, however likely
    params = dataclasses.replace(SPARSE, threshold=1.0, max_example_tokens=4, clip_bound=9.0, temperature=1.0)
    return BatchGenerator(
        decoder=TableDecoder(table, micro_batch_size=4), writer=writer, params=params, run_id='run-1'
    )


def _batch(texts: Sequence[str], index: int = 0) -> records.Batch:
    contexts = tuple(
        records.Context(context_hash=bytes([number]) * 16, texts=(text,)) for number, text in enumerate(texts)
    )
    return records.Batch(batch_id=records.BatchId(group=0, index=index), label=LABEL, contexts=contexts)


@pytest.mark.parametrize(
    'texts', [[], ['one'], ['a ball', 'a game', 'a goal', 'a match', 'a cup']], ids=['empty', 'one', 'five']
)
def test_a_batch_becomes_the_examples_that_the_twin_decodes(
    generator: BatchGenerator, texts: list[str]
) -> None:
    """From contexts to text: prompts, draws under the batch's name, the stream, its cuts, and its counts."""
    batch, key, params, writer = _batch(texts), RunKey(bytes(range(32))), generator.params, generator.writer
    examples = generator.generate(batch, key).examples

    table = np.asarray(generator.decoder.weights)
    vocab = table.shape[-1]
    types = np.array([type_of(prompt) for prompt in writer.private_prompts(LABEL, batch.contexts)], int)
    public_type = type_of(writer.public_prompt(LABEL))

    def logits_at(example: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        state = STATES
        for offset, token in enumerate(example):
            state = next_state(state, token, offset)
        return table[types, state], table[public_type, state]

    draws = randomness.batch_draws(
        key,
        'run-1',
        '0000-000000',
        max_private_tokens=params.max_private_tokens,
        max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=params.threshold_noise_scale,
        batch_size=params.batch_size,
        levels=sampling.tree_levels(vocab),
    )
    stream = oracles.stream(
        logits_at,
        oracles.Mechanism.of(params, writer.tokenizer.stop_tokens),
        threshold_noise=sparse_vector.probability(draws.threshold_noise, params),
        distance_noise=sparse_vector.probability(draws.distance_noise, params),
        token_words=draws.token_words,
        released=writer.released_tokens(vocab),
    )
    expected = oracles.split(stream, writer.tokenizer.stop_tokens, params.max_example_tokens)
    assert len(expected) > 1
    assert examples == [
        records.SyntheticExample(
            text=writer.texts([tokens])[0],
            label=LABEL,
            batch_id='0000-000000',
            index_in_batch=index,
            private_tokens=private,
            public_tokens=public,
            truncated=truncated,
        )
        for index, (tokens, private, public, truncated) in enumerate(expected)
    ]


@pytest.mark.parametrize('texts', [[], ['a ball', 'a game', 'a goal']])
def test_time_is_noted_of_the_tokens_of_all_rows_after_the_first_one(
    generator: BatchGenerator, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(speed, 'note', lambda work, tokens, seconds: noted.append(tokens))
    batch = _batch(texts)
    stream = generator.decode(batch, generator.draws(batch, RunKey(bytes(range(32)))))
    assert sum(noted) == len(texts) * (len(stream.tokens) - 1) and len(noted) > 1


def test_the_first_batch_says_which_programs_are_compiled_and_no_later_one_does(
    generator: BatchGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger batch has another program: the display does not tell its size."""
    said: list[str] = []
    monkeypatch.setattr(activity, 'report', lambda found: said.append(found.doing))
    anew, key = dataclasses.replace(generator, run_id='anew'), RunKey(bytes(range(32)))
    for index, texts in enumerate(
        (['a ball'], ['a game'], ['a ball', 'a game', 'a goal', 'a match', 'a cup'])
    ):
        said.clear()
        anew.generate(_batch(texts, index), key)
        if index == 0:
            assert said[:3] == [f'Compiling ({number} of 3)' for number in (1, 2, 3)]
        else:
            assert said[:3] == ['Reading public prompts', 'Reading prompts', 'Decoding']
        assert set(said[3:]) == {'Decoding'}


@pytest.mark.first
def test_a_batch_is_a_function_of_its_contexts_key_run_and_name(generator: BatchGenerator) -> None:
    key, batch = RunKey(bytes(range(32))), _batch(['a ball', 'a game'])
    first = generator.generate(batch, key).examples
    assert generator.generate(batch, RunKey(bytes(range(32)))).examples == first
    others = [
        generator.generate(batch, RunKey(bytes(range(1, 33)))).examples,
        dataclasses.replace(generator, run_id='run-2').generate(batch, key).examples,
        generator.generate(_batch(['a ball', 'a game'], index=1), key).examples,
    ]
    texts = [[example.text for example in examples] for examples in (first, *others)]
    assert all(texts[0] != other for other in texts[1:])


def test_a_median_batch_carries_its_losses_beside_its_examples(generator: BatchGenerator) -> None:
    """The same examples' tokens, place by place; and nothing of the losses where the price is known."""
    key, batch = RunKey(bytes(range(32))), _batch(['a ball', 'a game', 'a goal', 'a match'])
    assert generator.generate(batch, key).loss is None
    params = dataclasses.replace(generator.params, aggregate='median')
    found = dataclasses.replace(generator, params=params).generate(batch, key)
    loss = found.loss
    assert loss is not None and loss.batch_id == str(batch.batch_id) == '0000-000000'
    tokens = [example.private_tokens + example.public_tokens for example in found.examples]
    assert loss.places == tuple(place for count in tokens for place in range(count))
    assert len(loss.minus_log_alpha) == len(loss.log_beta) == len(loss.is_private) == sum(tokens)
    assert sum(loss.is_private) == sum(example.private_tokens for example in found.examples)
    private = np.array(loss.is_private)
    for losses in (np.array(loss.minus_log_alpha), np.array(loss.log_beta)):
        assert (losses[private] > 0).any() and not losses[~private].any() and (losses >= 0).all()
    assert loss.epsilon(params) > 0
    assert 'log' not in repr(found) and 'loss' not in repr(found)


def test_a_mask_that_one_call_registers_is_decoded(generator: BatchGenerator) -> None:
    """Its name in the settings is all that a run needs: prompts, stream and examples follow."""
    key, batch = RunKey(bytes(range(32))), _batch(['a ball', 'a game', 'a goal'])
    params = dataclasses.replace(generator.params, max_example_tokens=6)
    with registered(RisingMask()) as name:
        masked = dataclasses.replace(
            generator, params=params, writer=dataclasses.replace(generator.writer, mask=name)
        )
        tokens = masked.decode(batch, masked.draws(batch, key)).tokens.tolist()
        examples = masked.generate(batch, key).examples
        assert masked.stop_rule.tokens == generator.stop_rule.tokens
    stop, before = generator.stop_rule.tokens, -1
    place, rises = 0, 0
    for token in tokens:
        assert token in stop or token > before
        rises += token not in stop and place > 0
        place, before = (0, -1) if token in stop or place + 1 == 6 else (place + 1, token)
    assert rises > 3 and sum(e.private_tokens + e.public_tokens for e in examples) == len(tokens)
    usual = dataclasses.replace(generator, params=params)
    assert tokens != usual.decode(batch, usual.draws(batch, key)).tokens.tolist()


def test_a_mask_without_a_name_and_one_beside_a_structure_are_refused(generator: BatchGenerator) -> None:
    with pytest.raises(ValueError, match=r"got mask='risen'\. Known: any-text"):
        dataclasses.replace(generator.writer, mask='risen')
    with registered(RisingMask()) as name:
        with pytest.raises(ValueError, match="got mask='rising' beside a structure"):
            dataclasses.replace(generator.writer, mask=name, structure=Structure(regex='a'))
        with pytest.raises(ValueError, match="Expected a name of its own, got name='rising'"):
            register(RisingMask())
