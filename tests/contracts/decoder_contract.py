"""The contract of every family of decoders, whatever its models: the guarantee and the loop rest on it.

Each `check_...` takes a case and asserts. tests/contracts/decoder_test.py runs all of them for
every registered family; a family's own tests may run them for more of its models.

Rows are compared bit by bit: that a row does not move with the others is a privacy property.
Programs of different shapes agree to rounding.
"""

import dataclasses
import functools
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.constraints import Vocabulary
from models.decoders.decoder import Decoder, Shapes
from models.decoders.family import Family, Tunable
from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN, Tokenizer
from models.generate.loop import decode_stream
from models.generate.rows import prefill_public
from models.privacy import randomness, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule

SHAPES = Shapes(max_prompt_tokens=14, max_example_tokens=6, micro_batch_size=4, rows_multiple=2)
# Steps of up to all tokens of an example.
STEP_SHAPES = dataclasses.replace(SHAPES, step_tokens=SHAPES.max_example_tokens)
CUTS = ((6,), (1, 5), (4, 2), (2, 1, 3), (3, 2, 1))
PADDING = np.array([1], np.int32)
# Token ids of four examples in turn, the second as long as the cache allows, the last like the first.
EXAMPLES = ((5, 9, 30, 2), (7, 7, 1, 60, 33, 21), (80,), (5, 9, 30, 2))
TEXTS = (
    '', ' ', '  two  spaces ', '\n\n', 'tab\tand\r\n', 'Grüße aus Zürich', 'русский текст', '日本語の文章',
    '👩\u200d👩\u200d👧 family', 'nul\0inside', '1234567890', '{"name": ["str", 1.5]}',
    '<b>bold</b> a < b > c', START_OF_TURN, f'so {END_OF_TURN} it', '<end_of_turn', '<|im_end|>',
    '<|endoftext|>', '</s>', '<s>', '<pad>',
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderCase:
    """A decoder under test.

    Attributes:
        load: The decoder of the case at some shapes, in float32. Weights should be read once.
        tolerance: Largest absolute difference of two programs' logits by rounding.
        micro_batch_sizes: Sizes that are compared with the largest one.
    """

    load: Callable[[Shapes], Decoder]
    tolerance: float = 1e-4
    micro_batch_sizes: Sequence[int] = (1, 3, 4, 8)

    def decoder(self, micro_batch_size: int = SHAPES.micro_batch_size) -> Decoder:
        """The decoder of the contract's shapes."""
        return self.load(dataclasses.replace(SHAPES, micro_batch_size=micro_batch_size))

    def examples(self) -> list[list[int]]:
        """`EXAMPLES` within the vocabulary."""
        return [[token % self.decoder().vocab_size for token in example] for example in EXAMPLES]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunableCase:
    """A model under test as it is fine-tuned, in float32.

    Attributes:
        family: Loads it.
        rank: Rank of the adapter; None for a difference of all weights.
    """

    family: Family
    model: str
    checkpoint: str
    rank: int | None

    def load(self) -> Tunable:
        """The model."""
        return self.family.load_tunable(self.model, self.checkpoint, dtype='float32')

    def adapter(self, seed: int = 0) -> Any:
        """A random adapter that moves every logit, in float32."""
        rng, shapes = np.random.default_rng(seed), self.family.adapter_shapes(self.model, self.rank)
        size = 0.01 if self.rank is None else 0.1
        return jax.tree.map(lambda leaf: jnp.asarray(size * rng.normal(size=leaf.shape), jnp.float32), shapes)

    def rows(self) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Two instructions `[2 P]` of different lengths `[2]`, and three texts `[3 T]`."""
        rng, vocab = np.random.default_rng(1), self.family.models[self.model].num_embed
        instructions = rng.integers(1, vocab, (2, SHAPES.max_prompt_tokens)).astype(np.int32)
        texts = rng.integers(1, vocab, (3, SHAPES.max_example_tokens)).astype(np.int32)
        return (instructions, np.array([SHAPES.max_prompt_tokens, 5], np.int32)), texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerCase:
    """A tokenizer under test.

    Attributes:
        tokenizer: As its family loads it; some checks need it unread.
        num_embed: Rows of the embedding of its model.
    """

    tokenizer: Tokenizer
    num_embed: int


def prompts(
    vocab_size: int, count: int, seed: int = 0, longest: int = SHAPES.max_prompt_tokens
) -> list[np.ndarray]:
    """Prompts of all lengths from 1 to the longest, in no order; no id 0 among their tokens."""
    rng = np.random.default_rng(seed)
    lengths = [1, longest, *rng.integers(1, longest + 1, max(0, count - 2))][:count]
    return [rng.integers(1, vocab_size, length).astype(np.int32) for length in lengths]


@functools.cache
def jitted_step(decoder: Decoder) -> Callable:
    """The decoder's step, compiled once for each decoder."""
    return jax.jit(decoder.step)


@functools.cache
def jitted_logits(decoder: Decoder) -> Callable:
    """The decoder's output layer, compiled once for each decoder."""
    return jax.jit(decoder.logits)


def logits_of(
    decoder: Decoder, states: Sequence[jax.Array], columns: Sequence[int] | None = None
) -> np.ndarray:
    """Logits `[rows, V]`, or `[rows, C]`, of the states of all micro-batches."""
    chosen = None if columns is None else jnp.asarray(columns, jnp.int32)
    parts = [jitted_logits(decoder)(decoder.weights, part, chosen) for part in states]
    assert {part.dtype for part in parts} == {jnp.dtype('float32')}
    return np.concatenate([np.asarray(part) for part in parts])


def prefilled(
    decoder: Decoder, rows: Sequence[np.ndarray], columns: Sequence[int] | None = None
) -> tuple[np.ndarray, object]:
    """Logits `[rows, V]`, or `[rows, C]`, after each prompt, padding rows too, and the cache."""
    count = decoder.shapes.micro_batches(len(rows)) * decoder.shapes.micro_batch_size
    states, cache = decoder.prefill([*rows, *[PADDING] * (count - len(rows))])
    return logits_of(decoder, states, columns), cache


def decoded(
    decoder: Decoder,
    rows: Sequence[np.ndarray],
    examples: Sequence[Sequence[int]],
    columns: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Logits `[1 + len(example), rows, V]` of each example in turn, from one prefill; padding rows too.

    With columns `[1 + len(example), rows, C]`.
    """
    first, cache = prefilled(decoder, rows, columns)
    results = []
    for example in examples:
        logits = [first]
        for offset, token in enumerate(example):
            parts, cache = jitted_step(decoder)(decoder.weights, cache, jnp.int32(token), jnp.int32(offset))
            logits.append(logits_of(decoder, parts, columns))
        results.append(np.stack(logits))
    return results


@functools.cache
def jitted_append(decoder: Decoder) -> Callable:
    """The decoder's step of several tokens, compiled once for each decoder."""
    return jax.jit(decoder.append)


def decoded_in_steps(
    decoder: Decoder, rows: Sequence[np.ndarray], example: Sequence[int], cuts: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Logits `[steps, rows, V]` after each step of an example, for each of its cuts in turn; one prefill.

    Behind a step's tokens lie others, which mean nothing.
    """
    _, cache = prefilled(decoder, rows)
    most, results = decoder.shapes.step_tokens, []
    for cut in cuts:
        offset, logits = 0, []
        for count in cut:
            tokens = np.arange(most, dtype=np.int32) + 1
            tokens[:count] = example[offset : offset + count]
            parts, cache = jitted_append(decoder)(
                decoder.weights, cache, jnp.asarray(tokens), jnp.int32(count), jnp.int32(offset)
            )
            logits.append(logits_of(decoder, parts))
            offset += count
        results.append(np.stack(logits))
    return results


def decoded_each(
    decoder: Decoder, rows: Sequence[np.ndarray], examples: Sequence[Sequence[int]], waits: Sequence[int]
) -> list[list[np.ndarray]]:
    """Logits `[V]` of every row after each token of its own example, which begins after its own wait.

    Rows that wait, or have ended, are stepped on with the others. `rows` are of one micro-batch.
    """
    states, (cache,) = decoder.prefill(rows)
    found: list[list[np.ndarray]] = [[] for _ in rows]
    most = decoder.shapes.max_example_tokens
    for clock in range(max(wait + len(example) for wait, example in zip(waits, examples, strict=True))):
        places = [clock - wait for wait in waits]
        now = [0 <= place < len(example) for place, example in zip(places, examples, strict=True)]
        tokens = [
            example[place] if is_now else 7
            for place, example, is_now in zip(places, examples, now, strict=True)
        ]
        # A row that has ended goes on writing behind its example, or over it.
        offsets = jnp.asarray(np.clip(places, 0, most - 1), jnp.int32)
        parts, (cache,) = jitted_append(decoder)(
            decoder.weights, (cache,), jnp.asarray(tokens, jnp.int32)[:, None], jnp.int32(1), offsets
        )
        for row, (logits, is_now) in enumerate(zip(logits_of(decoder, parts), now, strict=True)):
            if is_now:
                found[row].append(logits)
    return found


def some_columns(decoder: Decoder) -> list[int]:
    """Nine token ids in no order, the first and the last among them, and one of them twice."""
    last = decoder.vocab_size - 1
    return [last, 0, 5, last // 2, 3, last // 3, 5, last - 1, 1]


# ------------------------------------------------------------------- the decoder


def check_steps_equal_longer_prompts(case: DecoderCase) -> None:
    """A step is what a prefill of the prompt with the tokens so far would give; four examples in turn."""
    decoder = case.decoder()
    rows = prompts(
        decoder.vocab_size, 7, seed=10, longest=SHAPES.max_prompt_tokens - SHAPES.max_example_tokens
    )
    examples = case.examples()
    assert SHAPES.max_example_tokens == max(map(len, examples))
    for example, logits in zip(examples, decoded(decoder, rows, examples), strict=True):
        assert logits.shape == (1 + len(example), 8, decoder.vocab_size) and np.isfinite(logits).all()
        for length in range(1 + len(example)):
            longer = [np.concatenate([row, np.array(example[:length], np.int32)]) for row in rows]
            expected, _ = prefilled(decoder, longer)
            assert np.ptp(expected) > 1  # a model that says something
            np.testing.assert_allclose(logits[length, :7], expected[:7], rtol=0, atol=case.tolerance)


def check_steps_of_several_tokens_equal_single_ones(case: DecoderCase) -> None:
    """However an example is cut into steps, up to the cache's end and from the prompts' end again."""
    decoder = case.load(STEP_SHAPES)
    rows, example = prompts(decoder.vocab_size, 7, seed=11), case.examples()[1]
    (single,) = decoded(decoder, rows, [example])
    for cut, logits in zip(CUTS, decoded_in_steps(decoder, rows, example, CUTS), strict=True):
        assert sum(cut) == len(example) == SHAPES.max_example_tokens
        np.testing.assert_allclose(logits, single[np.cumsum(cut)], rtol=0, atol=case.tolerance)


def check_a_row_does_not_move_in_steps_of_several_tokens(case: DecoderCase) -> None:
    """Other contents and lengths of the other rows, or padding: 0 bits."""
    decoder, example = case.load(STEP_SHAPES), case.examples()[1]
    rows, others = prompts(decoder.vocab_size, 4, seed=12), prompts(decoder.vocab_size, 4, seed=13)
    mine = rows[2]
    found = decoded_in_steps(decoder, rows, example, CUTS)
    for batch in ([*others[:2], mine, others[3]], [PADDING, PADDING, mine, PADDING]):
        for logits, expected in zip(decoded_in_steps(decoder, batch, example, CUTS), found, strict=True):
            np.testing.assert_array_equal(logits[:, 2], expected[:, 2])


def check_rows_at_their_own_places_are_those_of_one_place(case: DecoderCase) -> None:
    """Each row with its own tokens, some begun later than others: the states of all rows at one place.

    To rounding; and to the bit, whenever a row begins, and whatever the other rows do meanwhile.
    """
    decoder, examples = case.decoder(), case.examples()
    rows = prompts(decoder.vocab_size, SHAPES.micro_batch_size, seed=14)
    waits = (0, 2, 5, 1)
    found = decoded_each(decoder, rows, examples, waits)
    for row, logits in enumerate(found):
        (whole,) = decoded(decoder, rows, [examples[row]])
        np.testing.assert_allclose(np.stack(logits), whole[1:, row], rtol=0, atol=case.tolerance)
    others = prompts(decoder.vocab_size, SHAPES.micro_batch_size, seed=15)
    for row in range(SHAPES.micro_batch_size):
        batch = [rows[row] if row == place else other for place, other in enumerate(others)]
        of_batch = [examples[row] if row == place else examples[1] for place in range(len(batch))]
        again = decoded_each(decoder, batch, of_batch, [3 if row == place else 0 for place in range(4)])
        np.testing.assert_array_equal(np.stack(again[row]), np.stack(found[row]))


def check_a_row_takes_another_prompt(case: DecoderCase) -> None:
    """While the others keep theirs: the same bits as if it had been there from the beginning."""
    decoder, examples = case.decoder(), case.examples()
    rows, others = prompts(decoder.vocab_size, 4, seed=16), prompts(decoder.vocab_size, 4, seed=17)
    _, (cache,) = decoder.prefill(rows)
    _, (other,) = decoder.prefill(others)
    # A place behind the last row takes nothing.
    one = jax.tree.map(lambda of: of[1:3], other)
    mixed = jax.jit(decoder.with_rows)(cache, jnp.array([2, 4]), one)
    wanted = decoder.prefill([*rows[:2], others[1], rows[3]])[1][0]
    for offset, token in enumerate(examples[0]):
        found = []
        for of in (mixed, wanted):
            parts, (after,) = jitted_step(decoder)(
                decoder.weights, (of,), jnp.int32(token), jnp.int32(offset)
            )
            found.append((logits_of(decoder, parts), after))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        mixed, wanted = found[0][1], found[1][1]


def check_every_example_starts_from_the_prompts_end(case: DecoderCase) -> None:
    """Prefilled once or once more for each example, the full-length one before it or not: the same bits."""
    decoder, examples = case.decoder(), case.examples()
    rows = prompts(decoder.vocab_size, 4, seed=1)
    for example, logits in zip(examples, decoded(decoder, rows, examples), strict=True):
        (fresh,) = decoded(decoder, rows, [example])
        np.testing.assert_array_equal(logits, fresh)


def check_a_row_does_not_move_with_the_other_rows(case: DecoderCase) -> None:
    """Other contents, other lengths, padding instead, rows before it gone or more behind it: 0 bits.

    Of all logits, and of those of some columns.
    """
    decoder, example = case.decoder(), case.examples()[1]
    rows = prompts(decoder.vocab_size, 6, seed=2)
    mine, columns = rows[2], some_columns(decoder)
    (logits,), (of_columns,) = decoded(decoder, rows, [example]), decoded(decoder, rows, [example], columns)
    others = prompts(decoder.vocab_size, 9, seed=3)
    for batch, index in (
        ([others[0], others[1], mine, others[2]], 2),
        ([mine], 0),
        ([mine, *rows], 0),
        (rows[1:], 1),
        ([*others, mine], 9),
        ([PADDING, PADDING, mine, PADDING, PADDING], 2),
        ([mine] * 4, 3),
    ):
        for chosen, expected in ((None, logits[:, 2]), (columns, of_columns[:, 2])):
            (found,) = decoded(decoder, batch, [example], chosen)
            np.testing.assert_array_equal(found[:, index], expected)


def check_columns_are_those_of_all_logits(case: DecoderCase) -> None:
    """In their order, the repeated one twice; all of them, and one; a row by itself. To rounding."""
    decoder, example = case.decoder(), case.examples()[0]
    rows, vocab = prompts(decoder.vocab_size, 5, seed=6), decoder.vocab_size
    (everything,) = decoded(decoder, rows, [example])
    for columns in (some_columns(decoder), list(range(vocab)), list(range(vocab))[::-1], [vocab - 1]):
        (found,) = decoded(decoder, rows, [example], columns)
        assert found.shape == (*everything.shape[:2], len(columns))
        np.testing.assert_allclose(found, everything[..., columns], rtol=0, atol=case.tolerance)
    (states, *_), _ = decoder.prefill(rows[: decoder.shapes.micro_batch_size])
    for columns in (None, some_columns(decoder)):
        alone = logits_of(decoder, [states[:1]], columns)
        wanted = everything[0, :1] if columns is None else everything[0, :1, columns].T
        np.testing.assert_allclose(alone, wanted, rtol=0, atol=case.tolerance)


def check_micro_batches_equal_the_whole(case: DecoderCase) -> None:
    """One size is one program, so sizes agree only to rounding; a run has one size, a public setting."""
    largest, example = max(case.micro_batch_sizes), case.examples()[0]
    whole_decoder = case.decoder(largest)
    rows = prompts(whole_decoder.vocab_size, largest, seed=4)
    (whole,) = decoded(whole_decoder, rows, [example])
    for size in sorted(set(case.micro_batch_sizes) - {largest}):
        # A program takes longer to compile with each micro-batch: two at most.
        count = min(2 * size, largest)
        (parts,) = decoded(case.decoder(size), rows[:count], [example])
        np.testing.assert_allclose(parts[:, :count], whole[:, :count], rtol=0, atol=case.tolerance)


def check_padding_rows_vote_nothing(case: DecoderCase) -> None:
    """Four contexts fill one size and leave padding in the other, the public row alone: the same stream.

    Whatever is sampled is a released id. Rounding may turn a token about once in 1e4: the key is fixed.
    """
    params = MechanismParams(
        batch_size=4, clip_bound=4.0, temperature=1.5, max_private_tokens=12, max_batch_tokens=12,
        max_example_tokens=SHAPES.max_example_tokens, threshold=0.8, threshold_noise_scale=0.4,
    )  # fmt: skip
    streams = []
    for size in (4, max(case.micro_batch_sizes)):
        decoder = case.decoder(size)
        rows = prompts(decoder.vocab_size, 5, seed=5)
        released = np.arange(decoder.vocab_size) > 4
        draws = randomness.batch_draws(
            randomness.RunKey(bytes(range(32))), 'run', '0000-000000',
            max_private_tokens=params.max_private_tokens, max_batch_tokens=params.max_batch_tokens,
            threshold_noise_scale=params.threshold_noise_scale,
            batch_size=params.batch_size,
            levels=sampling.tree_levels(decoder.vocab_size),
        )  # fmt: skip
        stream = decode_stream(
            decoder, prefill_public(decoder, rows[:1]), rows[1:],
            params=params, draws=draws, constraint=Vocabulary.of(released),
            stop_rule=StopRule.of(decoder.vocab_size, tokens=range(8, decoder.vocab_size, 4)),
        )  # fmt: skip
        assert ((stream.tokens > 4) & (stream.tokens < decoder.vocab_size)).all()
        streams.append((stream.tokens.tolist(), stream.is_private.tolist()))
    assert streams[0] == streams[1] and len(set(streams[0][0])) > 2


DECODER_CHECKS = (
    check_steps_equal_longer_prompts,
    check_steps_of_several_tokens_equal_single_ones,
    check_a_row_does_not_move_in_steps_of_several_tokens,
    check_rows_at_their_own_places_are_those_of_one_place,
    check_a_row_takes_another_prompt,
    check_every_example_starts_from_the_prompts_end,
    check_a_row_does_not_move_with_the_other_rows,
    check_columns_are_those_of_all_logits,
    check_micro_batches_equal_the_whole,
    check_padding_rows_vote_nothing,
)


# ------------------------------------------------------------------- fine-tuning


def _log_probabilities(
    case: TunableCase, tunable: Tunable
) -> Callable[[Any, tuple[np.ndarray, np.ndarray], np.ndarray, Any], jax.Array]:
    """A compiled function of an adapter, instructions, texts and what is known of the instructions."""
    return jax.jit(functools.partial(tunable.log_probabilities, tunable.weights))


def check_a_decoder_predicts_what_is_trained(case: TunableCase) -> None:
    """The probabilities that training reads are those that the decoder with the adapter samples from."""
    tunable, adapter = case.load(), case.adapter()
    (instructions, lengths), texts = case.rows()
    trained = _log_probabilities(case, tunable)(adapter, (instructions, lengths), texts, None)
    decoder = case.family.load_decoder(
        case.model, case.checkpoint, shapes=SHAPES, dtype='float32', adapter=adapter
    )
    rows = [row[:length] for row, length in zip(instructions, lengths, strict=True)]
    of_examples = decoded(decoder, rows, [text.tolist() for text in texts])
    for of_text, text, logits in zip(np.asarray(trained), texts, of_examples, strict=True):
        for place, token in enumerate(text):
            sampled = jax.nn.log_softmax(logits[place, : len(rows)])[:, token]
            np.testing.assert_allclose(of_text[:, place], sampled, rtol=0, atol=1e-4)


def check_a_gradient_is_the_slope(case: TunableCase) -> None:
    """Along the gradient itself, and along a random direction, by differences; known products or not."""
    tunable, adapter = case.load(), case.adapter()
    instructions, texts = case.rows()
    log_probabilities = _log_probabilities(case, tunable)
    known = jax.jit(tunable.products)(tunable.weights, adapter, instructions[0])

    def total(adapter: Any, known: Any = None) -> jax.Array:
        return log_probabilities(adapter, instructions, texts, known).sum()

    slopes = jax.jit(jax.grad(total))
    gradient, again = slopes(adapter), slopes(adapter, known)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3), gradient, again
    )
    for direction in (gradient, case.adapter(seed=2)):
        size = float(jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(direction))))
        step = jax.tree.map(lambda leaf, size=size: 1e-3 / size * leaf, direction)
        before, after = (jax.tree.map(way, adapter, step) for way in (jnp.subtract, jnp.add))
        slope = sum(map(jnp.vdot, jax.tree.leaves(gradient), jax.tree.leaves(step)))
        assert float(total(after) - total(before)) / 2 == pytest.approx(float(slope), rel=0.05, abs=5e-5)


def check_a_text_does_not_move_with_the_others(case: TunableCase) -> None:
    """Other texts, the other instruction, and what lies behind a token or an instruction: 0 bits."""
    tunable, adapter = case.load(), case.adapter()
    (instructions, lengths), texts = case.rows()
    log_probabilities = _log_probabilities(case, tunable)
    found = np.asarray(log_probabilities(adapter, (instructions, lengths), texts, None))
    others = instructions[::-1].copy()
    others[1] = instructions[1]
    others[1, lengths[1] :] = 3
    changed = np.stack([texts[1], texts[1], texts[0]])
    changed[1, 4:] = 2
    again = np.asarray(log_probabilities(adapter, (others, lengths), changed, None))
    np.testing.assert_array_equal(again[1, 1, :4], found[1, 1, :4])
    assert (again[0, 0] != found[0, 0]).any()


TUNABLE_CHECKS = (
    check_a_decoder_predicts_what_is_trained,
    check_a_gradient_is_the_slope,
    check_a_text_does_not_move_with_the_others,
)


# ------------------------------------------------------------------- the tokenizer


def check_pickle_carries_the_path_alone(case: TokenizerCase) -> None:
    """Read or not; workers read the file themselves."""
    expected = case.tokenizer.encode_batch(['loaded before'])[0]
    pickled = pickle.dumps(case.tokenizer)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert again == case.tokenizer
    np.testing.assert_array_equal(again.encode_batch(['loaded before'])[0], expected)


def check_texts_come_back(case: TokenizerCase) -> None:
    """Those that look like control tokens as well, and none of them gives one."""
    tokenizer = case.tokenizer
    encoded = tokenizer.encode_batch(TEXTS)
    assert {ids.dtype for ids in encoded} == {np.dtype(np.int32)}
    assert tokenizer.decode_batch(encoded) == list(TEXTS)
    marks = {index for ids in tokenizer.turn_markers.values() for index in ids}
    controls = {*tokenizer.start_tokens, *tokenizer.stop_tokens}
    for text, ids in zip(TEXTS, encoded, strict=True):
        assert ((ids >= 0) & (ids < tokenizer.vocab_size)).all()
        assert not controls & set(ids.tolist()), text
        if START_OF_TURN in text or END_OF_TURN in text:
            assert not marks & set(ids.tolist()), text


def check_a_lone_surrogate_is_a_question_mark(case: TokenizerCase) -> None:
    """Any `str` has ids."""
    found, expected = case.tokenizer.encode_batch(['a\ud800b', 'a?b'])
    assert found.tolist() == expected.tolist()


def check_empty_batches(case: TokenizerCase) -> None:
    """No texts, and texts without tokens."""
    tokenizer = case.tokenizer
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.decode_batch([]) == []
    (one,) = tokenizer.encode_batch(['a'])
    assert [len(ids) for ids in tokenizer.encode_batch(['', 'a', ''])] == [0, len(one), 0]
    assert tokenizer.decode_batch([[], one, []]) == ['', 'a', '']


def check_ids_outside_the_vocabulary_are_refused(case: TokenizerCase) -> None:
    """A model may have more rows than there are pieces."""
    size = case.tokenizer.vocab_size
    for index in (-1, size):
        with pytest.raises(ValueError, match=rf'ids in \[0, {size}\), got id={index}\.'):
            case.tokenizer.decode_batch([[7], [5, index]])


def check_control_tokens_have_ids_and_no_text(case: TokenizerCase) -> None:
    """Start, stop and bare turn markers; an end of turn stops an example where there are turns."""
    tokenizer, markers = case.tokenizer, case.tokenizer.turn_markers
    assert not markers or {START_OF_TURN, END_OF_TURN} <= markers.keys()
    assert tokenizer.stop_tokens
    controls = [*tokenizer.start_tokens, *sorted(tokenizer.stop_tokens)]
    assert all(0 <= index < tokenizer.vocab_size for index in controls)
    for name, ids in markers.items():
        assert ids and all(0 <= index < tokenizer.vocab_size for index in ids), name
    (word,) = tokenizer.encode_batch(['word'])
    assert tokenizer.decode_batch([[*tokenizer.start_tokens, *word, *sorted(tokenizer.stop_tokens)]]) == [
        'word'
    ]


def check_token_bytes_add_up_to_the_text(case: TokenizerCase) -> None:
    """Random ids, broken characters among them, for which replacement characters may differ in number."""
    tokenizer, rng = case.tokenizer, np.random.default_rng(0)
    pieces = tokenizer.token_bytes()
    assert len(pieces) == tokenizer.vocab_size
    controls = [*tokenizer.start_tokens, *sorted(tokenizer.stop_tokens)]
    assert not any(pieces[index] for index in controls)
    spelt = tokenizer.encode_batch(TEXTS)
    assert [b''.join(pieces[index] for index in ids).decode() for ids in spelt] == list(TEXTS)
    released = np.flatnonzero(tokenizer.released_token_mask())
    short = [index for index in released if len(pieces[index]) == 1]
    rows = [rng.choice(released if row % 2 else short, rng.integers(1, 12)) for row in range(400)]
    for row, text in zip(rows, tokenizer.decode_batch(rows), strict=True):
        found = b''.join(pieces[index] for index in row).decode(errors='replace')
        assert re.sub('\ufffd+', '\ufffd', text) == re.sub('\ufffd+', '\ufffd', found), row


def check_released_tokens_are_text_and_stops(case: TokenizerCase) -> None:
    """Whatever text encodes to, and the stop tokens; no start token and no row past the vocabulary."""
    tokenizer = case.tokenizer
    mask = tokenizer.released_token_mask()
    assert mask.shape == (tokenizer.vocab_size,) and mask.dtype == bool
    assert mask[sorted(tokenizer.stop_tokens)].all()
    assert not mask[sorted(set(tokenizer.start_tokens) - tokenizer.stop_tokens)].any()
    for ids in tokenizer.encode_batch(TEXTS):
        assert mask[ids].all()


def check_rows_beyond_the_vocabulary_are_never_released(case: TokenizerCase) -> None:
    """Such as a model's, of which the vocabulary may not be larger."""
    tokenizer, size = case.tokenizer, case.tokenizer.vocab_size
    assert size <= case.num_embed
    for num_embed in (case.num_embed, size + 904):
        mask = tokenizer.released_token_mask(num_embed=num_embed)
        assert mask.shape == (num_embed,)
        np.testing.assert_array_equal(mask[:size], tokenizer.released_token_mask())
        assert not mask[size:].any()
    with pytest.raises(ValueError, match=f'vocab_size={size}, got num_embed={size - 1}'):
        tokenizer.released_token_mask(num_embed=size - 1)


TOKENIZER_CHECKS = (
    check_pickle_carries_the_path_alone,
    check_texts_come_back,
    check_a_lone_surrogate_is_a_question_mark,
    check_empty_batches,
    check_ids_outside_the_vocabulary_are_refused,
    check_control_tokens_have_ids_and_no_text,
    check_token_bytes_add_up_to_the_text,
    check_released_tokens_are_text_and_stops,
    check_rows_beyond_the_vocabulary_are_never_released,
)
