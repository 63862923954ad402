"""Texts of the run's own decoder, sampled in rows that are filled again as soon as their texts have ended.

Requests wait in a queue. Each row of a micro-batch holds one request. All rows step together in one compiled
loop (`segment.py`) until a few have ended; those then take the prompts of the next requests, and the loop
goes on. So a short text leaves no row idle for long, and a program has one shape whatever is asked for.

Prompts without examples are those of labels: their keys and values are read once and copied for every text.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import activity
from models.decoders import decoder, family
from models.privacy.randomness import RunKey
from models.sampling import segment
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
    `rows` the arithmetic may round otherwise, which turns a token in some ten thousand.
    """

    def __init__(self, settings: SamplerSettings) -> None:
        """Loads the weights and places them on the worker's devices.

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
            settings.model, settings.checkpoint, shapes=shapes, dtype=settings.dtype
        )
        self._stop = self._writer.stop_rule(self._decoder.vocab_size)
        self._tokens = Tokens(
            columns=None,
            table=jnp.asarray(self._stop.table),
            constraint=self._writer.constraint(self._decoder.vocab_size),
        )
        # Those of labels, the one that was asked for last at the end.
        self._kept: collections.OrderedDict[_Prompt, _Read] = collections.OrderedDict()
        self._run = jax.jit(
            functools.partial(segment.run, self._decoder, settings=settings), donate_argnames='rows'
        )
        self._filled = jax.jit(self._with_text, donate_argnames='rows')
        self._row = jax.jit(_row)

    def sample(self, requests: Sequence[Request], key: RunKey) -> list[SampledText | None]:
        """See `TextSource.sample`. Ask for many at once: rows are idle only at the end.

        Args:
            requests: Any number of them, with different names.
            key: The run's secret.

        Raises:
            ValueError: A name comes twice, or a prompt does not fit.
            MemoryError: The rows do not fit on the device.
        """
        if len({request.name for request in requests}) < len(requests):
            raise ValueError(
                'Expected requests with different names, got a name twice. A name stands for the randomness '
                'of one text: number them.'
            )
        activity.report(activity.Activity('Sampling'))
        waiting = collections.deque(range(len(requests)))
        found: list[SampledText | None] = [None] * len(requests)
        in_row: dict[int, int] = {}  # the requests whose texts are under way
        rows, free = None, list(range(self._rows))
        while waiting or in_row:
            taken = [waiting.popleft() for _ in range(min(len(waiting), len(free)))]
            for index, prompt in zip(taken, self._read([requests[index] for index in taken]), strict=True):
                rows = self._empty(prompt) if rows is None else rows
                row = free.pop()
                in_row[row] = index
                words = np.frombuffer(key.hash('text', requests[index].name.encode(), size=8), np.uint32)
                rows = self._filled(rows, row, words, prompt)
            # As many as prompts are read together, if so many wait; the last texts run to their ends.
            wanted = min(self._together, len(waiting), len(in_row)) or len(in_row)
            rows = self._run(self._decoder.weights, rows, self._tokens, jnp.int32(len(free) + wanted))
            free += self._collected(rows, in_row, found)
        return found

    def _collected(self, rows: Rows, in_row: dict[int, int], found: list[SampledText | None]) -> list[int]:
        """Takes the texts that have ended out of their rows, which are free then."""
        going, lengths = np.asarray(rows.is_going), np.asarray(rows.lengths)
        tokens, states = np.asarray(rows.tokens), np.asarray(rows.stop_states)
        ended = [row for row in in_row if not going[row]]
        is_cut = [bool(states[row] != self._stop.ended) for row in ended]
        ids = [tokens[row, : lengths[row]].tolist() for row in ended]
        for row, text, sampled, cut in zip(ended, self._texts(ids, is_cut), ids, is_cut, strict=True):
            found[in_row.pop(row)] = SampledText(text=text, tokens=len(sampled), truncated=cut)
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

    def _read(self, requests: Sequence[Request]) -> list[_Read]:
        """The prompts of requests, each different one read once."""
        prompts = [(request.label, request.examples) for request in requests]
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

        def zeros(of: jax.Array) -> jax.Array:
            return jnp.zeros((self._rows, *of.shape[1:]), of.dtype, device=of.sharding)

        most = self._settings.max_example_tokens
        return Rows(
            keys=jnp.zeros((self._rows, 2), jnp.uint32),
            tokens=jnp.zeros((self._rows, most), jnp.int32),
            lengths=jnp.zeros(self._rows, jnp.int32),
            stop_states=jnp.zeros(self._rows, jnp.int32),
            masked_by=jax.vmap(lambda _: self._tokens.constraint.start())(jnp.arange(self._rows)),
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
                lambda of, start: of.at[row].set(start), rows.masked_by, self._tokens.constraint.start()
            ),
            is_going=rows.is_going.at[row].set(True),
            states=rows.states.at[row].set(prompt.states[0]),
            cache=self._decoder.with_row(rows.cache, row, prompt.cache),
        )


def _row(of: _Read, row: jax.Array) -> _Read:
    """One prompt of several that were read together; compiled."""
    one: _Read = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, row, 1), of)
    return one
