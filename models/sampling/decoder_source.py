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

from models import activity, compilation, speed
from models.constraints import Grammar, Tabulated
from models.decoders import decoder, family
from models.privacy.randomness import RunKey
from models.sampling import columns, segment
from models.sampling.segment import Rows, Tokens
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request, SampledText, TextSource

_Prompt = tuple[str | None, tuple[str, ...]]
# A text that begins: its row, its prompt's row among those that were read together, and its key of 8 bytes.
_Text = tuple[int, int, bytes]
# An eighth of the rows is filled at a time. Fewer would leave fewer rows idle, and an accelerator too, which
# few prompts do not keep busy.
_REFILLS = 8


class _Read(NamedTuple):
    """Prompts that the model has read together."""

    states: jax.Array  # [n D]
    cache: Any


class _Place(NamedTuple):
    """A prompt's row among those that were read together."""

    read: _Read
    row: int


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
        compilation.keep_programs(settings.compilation_cache)
        self._settings = settings
        multiple = family.ROWS_MULTIPLE * len(jax.local_devices())
        self._rows = -(-settings.rows // multiple) * multiple
        # Prompts that are read, and rows that are filled, at a time.
        self._together = -(-self._rows // (_REFILLS * multiple)) * multiple
        self._writer = settings.writer()
        shapes = decoder.Shapes(
            max_prompt_tokens=settings.max_prompt_tokens,
            max_example_tokens=settings.max_example_tokens,
            micro_batch_size=self._rows,
            rows_multiple=multiple,
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
        self._kept: collections.OrderedDict[_Prompt, _Place] = collections.OrderedDict()
        self._run = jax.jit(
            functools.partial(segment.run, self._decoder, settings=settings), donate_argnames='rows'
        )
        self._filled = jax.jit(self._with_texts, donate_argnames='rows')

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
            for label, place in zip(several, self._read([(label, ()) for label in several]), strict=True):
                share = float(self._left_out(self._decoder.weights, place.read.states, place.row))
                self._is_few[label] = share <= columns.MOST_LEFT_OUT
        return frozenset(label for label in labels if not self._is_few[label])

    def _share_left_out(self, weights: Any, states: jax.Array, row: jax.Array) -> jax.Array:
        """Share of the next token's probability of the tokens that are left out, after a row; compiled."""
        states = jax.lax.dynamic_slice_in_dim(states, row, 1)
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
        # Labels whose prompts fit are read together, however their texts come.
        of_labels = [(request.label, request.examples) for request in map(requests.__getitem__, some)]
        self._read([prompt for prompt in dict.fromkeys(of_labels) if not prompt[1]][: self._rows])
        waiting = collections.deque(some)
        in_row: dict[int, int] = {}  # the requests whose texts are under way
        rows, free, written = None, list(range(self._rows)), 0
        while waiting or in_row:
            started = time.monotonic()
            taken = [waiting.popleft() for _ in range(min(len(waiting), len(free)))]
            prompts = [(requests[index].label, requests[index].examples) for index in taken]
            filling: dict[int, tuple[_Read, list[_Text]]] = {}
            tokens = len(set(prompts) - self._kept.keys()) * self._settings.max_prompt_tokens - written
            for index, place in zip(taken, self._read(prompts), strict=True):
                rows = self._empty(place.read) if rows is None else rows
                of_read = filling.setdefault(id(place.read), (place.read, []))[1]
                in_row[free[-1]] = index
                of_read.append(
                    (free.pop(), place.row, key.hash('text', requests[index].name.encode(), size=8))
                )
            rows = self._with_new_texts(rows, filling.values())
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

    def _read(self, prompts: Sequence[_Prompt]) -> list[_Place]:
        """Prompts as the model has read them, each different one once."""
        read = {prompt: self._kept[prompt] for prompt in prompts if prompt in self._kept}
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in read]
        # Labels apart from the others, which are not kept.
        for kept in (True, False):
            some = [prompt for prompt in new if bool(prompt[1]) != kept]
            for first in range(0, len(some), self._together):
                several = some[first : first + self._together]
                ids = [self._written(*prompt) for prompt in several]
                padding = [ids[0][:1]] * (self._together - len(ids))
                (states,), (cache,) = self._decoder.prefill([*ids, *padding], together=self._together)
                together = _Read(states, cache)
                read |= {prompt: _Place(together, row) for row, prompt in enumerate(several)}
        for prompt in dict.fromkeys(prompts):
            if not prompt[1]:
                self._kept[prompt] = read[prompt]
                self._kept.move_to_end(prompt)
        # No more than the rows' own, so that memory is at most twice theirs.
        while self._together * len({id(place.read) for place in self._kept.values()}) > self._rows:
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

    def _with_new_texts(self, rows: Rows | None, filling: Iterable[tuple[_Read, list[_Text]]]) -> Rows | None:
        """The rows with other texts at their beginnings in some of them."""
        for read, texts in filling:
            for first in range(0, len(texts), self._together):
                several = texts[first : first + self._together]
                # A place behind the last row takes nothing.
                into = np.full(self._together, self._rows, np.int32)
                taken, keys = np.zeros(self._together, np.int32), np.zeros((self._together, 2), np.uint32)
                for number, (row, of_read, key) in enumerate(several):
                    into[number], taken[number] = row, of_read
                    keys[number] = np.frombuffer(key, np.uint32)
                rows = self._filled(rows, into, keys, read, taken)
        return rows

    def _with_texts(
        self, rows: Rows, into: jax.Array, keys: jax.Array, read: _Read, taken: jax.Array
    ) -> Rows:
        """The rows with the texts of some prompts at their beginnings; compiled.

        Args:
            rows: The rows.
            into: `[n]` int32, the rows that are filled.
            keys: `[n 2]` uint32.
            read: Prompts.
            taken: `[n]` int32, the prompt of each text.
        """

        def filled(array: jax.Array, new: Any) -> jax.Array:
            return array.at[into].set(new, mode='drop')

        prompt: _Read = jax.tree.map(lambda array: array[taken], read)
        return Rows(
            keys=filled(rows.keys, keys),
            tokens=filled(rows.tokens, 0),
            lengths=filled(rows.lengths, 0),
            stop_states=filled(rows.stop_states, 0),
            masked_by=jax.tree.map(filled, rows.masked_by, self._all.constraint.start()),
            is_going=filled(rows.is_going, True),
            states=filled(rows.states, prompt.states),
            cache=self._decoder.with_rows(rows.cache, into, prompt.cache),
        )


def _written(rows: Rows, in_row: Iterable[int]) -> int:
    """Tokens so far of the texts in some rows."""
    return int(np.asarray(rows.lengths)[list(in_row)].sum())
