"""Texts of the run's own decoder, sampled in rows that are filled again as soon as their texts have ended.

Requests wait in a queue. Each row of a micro-batch holds one request. All rows step together in one compiled
loop (`segment.py`) until a few have ended; those then take the prompts of the next requests, and the loop
goes on. So a short text leaves no row idle for long, and a program has one shape whatever is asked for.

Prompts without examples are those of labels: their keys and values are read once and copied for every text.
Tokens are predicted for the scripts of the prompts alone, where that loses nothing (`columns.py`). Of a model
with an adapter all are: it may have learnt to write in another script than its prompts. The masks of a
structure are computed once, for each state (`models.constraints.tabulated`).
"""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import activity, speed
from models.constraints import Grammar, Tabulated
from models.decoders import decoder, family
from models.privacy.randomness import RunKey
from models.sampling import columns, segment
from models.sampling.segment import Rows, Tokens
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request, SampledText, TextSource

_Prompt = tuple[str | None, tuple[str, ...]]


class _Read(NamedTuple):
    """A prompt that the model has read, as a micro-batch of one row."""

    states: jax.Array  # [1 D]
    cache: Any


class DecoderSource(TextSource):
    """Holds the model and the compiled loop of a run.

    Formal guarantees: none are needed, since a request holds public and released values alone. A text is a
    function of the settings, the run key and its own request, bit by bit: its randomness is drawn from the
    run key by the request's name and the token's place, and the decoder's rows are independent. With another
    `rows` the arithmetic may round otherwise, and a token may turn, in bfloat16 more often than in float32.
    An adapter is an output of DP-SGD, so what is sampled with it is post-processing.
    """

    def __init__(self, settings: SamplerSettings, adapter: Any | None = None) -> None:
        """Loads the weights and places them on the worker's devices.

        Args:
            settings: Of the run.
            adapter: The adapter that fine-tuning gave, as `Family.load_decoder` takes it; None without one.

        Raises:
            FileNotFoundError: There is no such checkpoint.
            ValueError: The checkpoint is another model's, or the structure does not go with the prompt.
        """
        self._settings = settings
        self._together = family.ROWS_MULTIPLE * len(jax.local_devices())
        self._rows = -(-settings.rows // self._together) * self._together
        self._writer = settings.writer()
        shapes = decoder.Shapes(
            max_prompt_tokens=settings.max_prompt_tokens,
            max_example_tokens=settings.max_example_tokens,
            micro_batch_size=self._rows,
            rows_multiple=self._together,
        )
        self._decoder = family.family_of(settings.model).load_decoder(
            settings.model, settings.checkpoint, shapes=shapes, dtype=settings.dtype, adapter=adapter
        )
        self._stop = self._writer.stop_rule(self._decoder.vocab_size)
        constraint = self._writer.constraint(self._decoder.vocab_size)
        self._all = Tokens(
            columns=None,
            table=jnp.asarray(self._stop.table),
            constraint=Tabulated.of_grammar(constraint) if isinstance(constraint, Grammar) else constraint,
        )
        self._few = self._all
        if settings.structure is None and adapter is None:
            ids = columns.of_settings(settings, self._writer.tokenizer)
            self._few = self._all._replace(
                columns=jnp.asarray(ids), table=jnp.asarray(self._stop.table[:, ids])
            )
        self._is_few: dict[str | None, bool] = {}
        self._left_out = jax.jit(self._share_left_out)
        # Those of labels, the one that was asked for last at the end.
        self._kept: collections.OrderedDict[_Prompt, _Read] = collections.OrderedDict()
        self._run = jax.jit(
            functools.partial(segment.run, self._decoder, settings=settings), donate_argnames='rows'
        )
        self._filled = jax.jit(self._with_text, donate_argnames='rows')
        self._row = jax.jit(_row)

    def sample(self, requests: Sequence[Request], key: RunKey) -> list[SampledText | None]:
        """See `TextSource.sample`. Ask for many at once: rows are idle only at the end.

        Raises:
            ValueError: A name comes twice, or a prompt does not fit.
            MemoryError: The rows do not fit on the device.
        """
        if len({request.name for request in requests}) < len(requests):
            raise ValueError(
                'Expected requests with different names, got a name twice. A name stands for the randomness '
                'of one text: number them.'
            )
        activity.advance(0, len(requests), activity.TEXT)
        texts: list[SampledText | None] = [None] * len(requests)
        of_all = self._labels_of_all([request.label for request in requests])
        for is_all, tokens in ((False, self._few), (True, self._all)):
            some = [index for index, request in enumerate(requests) if (request.label in of_all) == is_all]
            self._sample(requests, some, tokens, key, texts)
        return texts

    def _labels_of_all(self, labels: Sequence[str | None]) -> frozenset[str | None]:
        """The labels whose texts are sampled from all tokens; decided once for each, by its public prompt."""
        if self._few is self._all:
            return frozenset(labels)
        new = [label for label in dict.fromkeys(labels) if label not in self._is_few]
        for first in range(0, len(new), self._rows):
            several = new[first : first + self._rows]
            for label, prompt in zip(several, self._read([(label, ()) for label in several]), strict=True):
                share = float(self._left_out(self._decoder.weights, prompt.states))
                self._is_few[label] = share <= columns.MOST_LEFT_OUT
        return frozenset(label for label in labels if not self._is_few[label])

    def _share_left_out(self, weights: Any, states: jax.Array) -> jax.Array:
        """Share of the next token's probability of the tokens that are left out; compiled."""
        assert self._few.columns is not None
        allowed = self._all.constraint.allowed(self._all.constraint.start())
        shares = jax.nn.softmax(jnp.where(allowed, self._decoder.logits(weights, states), -jnp.inf))[0]
        return 1 - shares[self._few.columns].sum()

    def _sample(
        self,
        requests: Sequence[Request],
        some: Sequence[int],
        of_tokens: Tokens,
        key: RunKey,
        texts: list[SampledText | None],
    ) -> None:
        """Puts the texts of some requests in their places."""
        waiting = collections.deque(some)
        in_row: dict[int, int] = {}  # the requests whose texts are under way
        rows, free, written = None, list(range(self._rows)), 0
        while waiting or in_row:
            started = time.monotonic()
            taken = [waiting.popleft() for _ in range(min(len(waiting), len(free)))]
            prompts = [(requests[index].label, requests[index].examples) for index in taken]
            tokens = len(set(prompts) - self._kept.keys()) * self._settings.max_prompt_tokens - written
            for index, prompt in zip(taken, self._read(prompts), strict=True):
                rows = self._empty(prompt) if rows is None else rows
                row = free.pop()
                in_row[row] = index
                words = np.frombuffer(key.hash('text', requests[index].name.encode(), size=8), np.uint32)
                rows = self._filled(rows, row, words, prompt)
            # As many as prompts are read together, if so many wait; the last texts run to their ends.
            wanted = min(self._together, len(waiting), len(in_row)) or len(in_row)
            rows = self._run(self._decoder.weights, rows, of_tokens, jnp.int32(len(free) + wanted))
            tokens += _written(rows, in_row)
            free += self._collected(rows, in_row, texts)
            written = _written(rows, in_row)
            speed.note('decoding', tokens, time.monotonic() - started)
            activity.advance(sum(one is not None for one in texts), len(texts), activity.TEXT)

    def _collected(self, rows: Rows, in_row: dict[int, int], texts: list[SampledText | None]) -> list[int]:
        """Takes the texts that have ended out of their rows, which are free then."""
        going, lengths = np.asarray(rows.is_going), np.asarray(rows.lengths)
        tokens, states = np.asarray(rows.tokens), np.asarray(rows.stop_states)
        ended = [row for row in in_row if not going[row]]
        is_cut = [bool(states[row] != self._stop.ended) for row in ended]
        ids = [tokens[row, : lengths[row]].tolist() for row in ended]
        for row, text, sampled, cut in zip(ended, self._texts(ids, is_cut), ids, is_cut, strict=True):
            texts[in_row.pop(row)] = SampledText(text=text, tokens=len(sampled), truncated=cut)
        return ended

    def _texts(self, ids: Sequence[Sequence[int]], is_cut: Sequence[bool]) -> list[str]:
        without_stop = [[token for token in row if token not in self._stop.tokens] for row in ids]
        texts, structure = self._writer.texts(without_stop), self._settings.structure
        if structure is not None and structure.closes_truncated:
            cut = [index for index, is_one in enumerate(is_cut) if is_one]
            closed = self._writer.closed_texts([without_stop[index] for index in cut])
            for index, text in zip(cut, closed, strict=True):
                texts[index] = text
        return texts

    def _read(self, prompts: Sequence[_Prompt]) -> list[_Read]:
        """Prompts as the model has read them, each different one once."""
        read = {prompt: self._kept[prompt] for prompt in prompts if prompt in self._kept}
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in read]
        for first in range(0, len(new), self._together):
            several = new[first : first + self._together]
            ids = [self._written(*prompt) for prompt in several]
            padding = [ids[0][:1]] * (self._together - len(ids))
            states, caches = self._decoder.prefill([*ids, *padding], together=self._together)
            read |= {
                prompt: self._row(_Read(states[0], caches[0]), row) for row, prompt in enumerate(several)
            }
        for prompt in dict.fromkeys(prompts):
            if not prompt[1]:
                self._kept[prompt] = read[prompt]
                self._kept.move_to_end(prompt)
        # No more than the rows' own, so that memory is at most twice theirs.
        while len(self._kept) > self._rows:
            self._kept.popitem(last=False)
        return [read[prompt] for prompt in prompts]

    def _written(self, label: str | None, examples: tuple[str, ...]) -> np.ndarray:
        if not examples:
            return self._writer.public_prompt(label)
        return self._writer.prompts_around(label, [examples])[0]

    def _empty(self, like: _Read) -> Rows:
        """Rows without texts."""

        def zeros(array: jax.Array) -> jax.Array:
            return jnp.zeros((self._rows, *array.shape[1:]), array.dtype, device=array.sharding)

        most = self._settings.max_example_tokens
        return Rows(
            keys=jnp.zeros((self._rows, 2), jnp.uint32),
            tokens=jnp.zeros((self._rows, most), jnp.int32),
            lengths=jnp.zeros(self._rows, jnp.int32),
            stop_states=jnp.zeros(self._rows, jnp.int32),
            masked_by=jax.vmap(lambda _: self._all.constraint.start())(jnp.arange(self._rows)),
            is_going=jnp.zeros(self._rows, bool),
            states=zeros(like.states),
            cache=jax.tree.map(zeros, like.cache),
        )

    def _with_text(self, rows: Rows, row: jax.Array, key: jax.Array, prompt: _Read) -> Rows:
        """The rows with another text at its beginning in one of them; compiled."""
        return Rows(
            keys=rows.keys.at[row].set(key),
            tokens=rows.tokens.at[row].set(0),
            lengths=rows.lengths.at[row].set(0),
            stop_states=rows.stop_states.at[row].set(0),
            masked_by=jax.tree.map(
                lambda array, start: array.at[row].set(start), rows.masked_by, self._all.constraint.start()
            ),
            is_going=rows.is_going.at[row].set(True),
            states=rows.states.at[row].set(prompt.states[0]),
            cache=self._decoder.with_row(rows.cache, row, prompt.cache),
        )


def _written(rows: Rows, in_row: Iterable[int]) -> int:
    """Tokens so far of the texts in some rows."""
    return int(np.asarray(rows.lengths)[list(in_row)].sum())


def _row(prompts: _Read, row: jax.Array) -> _Read:
    """One prompt of several that were read together; compiled."""
    one: _Read = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, row, 1), prompts)
    return one
