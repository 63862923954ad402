"""One batch, from contexts to synthetic examples: the loop of PP Algorithm 1, on the device.

The loop is one compiled program without a host round trip per token: it carries the
cache, the threshold, the counters and the tokens written so far, and reads its
randomness from arrays that were drawn before it started.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import records
from models.constraints import Constraint, Vocabulary
from models.decoders import decoder as decoder_lib
from models.privacy import candidates, ex_post, individual, mechanism, randomness, sampling
from models.privacy.params import MechanismParams
from models.prompts import PromptWriter
from models.stop_rule import StopRule


class TokenStream(NamedTuple):
    """All tokens of a batch in order, examples one after another, on the host.

    Attributes:
        tokens: `[n]` int32.
        is_private: `[n]` bool.
        losses: `[2, n]` float32: −log α and log β of every token (METHOD 5), private to
            the curator; None where the aggregate has a price in advance.
        spending: What each context was charged (METHOD 4d), private to the curator; None without
            individual accounting.
    """

    tokens: np.ndarray
    is_private: np.ndarray
    losses: np.ndarray | None = None
    spending: individual.Spending | None = None


@dataclasses.dataclass(frozen=True)
class ExampleTokens:
    """One example cut from a token stream.

    Attributes:
        tokens: Its ids, without the stop token; a stop text is still among them.
        private_tokens: Private tokens, the stop token counted.
        public_tokens: Public tokens, the stop token counted.
        truncated: Whether neither a stop token nor a stop text ended it.
    """

    tokens: tuple[int, ...]
    private_tokens: int
    public_tokens: int
    truncated: bool


class _Prompts(NamedTuple):
    """A batch's private prompts, run through the model once."""

    states: tuple[jax.Array, ...]  # [m, D] for every micro-batch, after each prompt
    is_private: tuple[jax.Array, ...]  # [m] bool; False for padding
    cache: tuple[Any, ...]


class PublicRows(NamedTuple):
    """The public prompt, or the prompts of a reference, run through the model once for many batches.

    Attributes:
        states: `[m, D]` after each prompt, padding rows last.
        cache: Of these rows, in a tuple of one.
        prompts: M, the rows that are no padding.
    """

    states: jax.Array
    cache: tuple[Any, ...]
    prompts: int


class _Place(NamedTuple):
    """Where a token stream stands; what the next token is chosen from."""

    offset: jax.Array  # int32 scalar, tokens of the current example before the next one
    state: Any  # of the constraint
    stop_state: jax.Array  # uint8 scalar, of the stop rule
    seen: Any  # what the loop keeps of the position's states: a run its votes, a replay all logits
    cache: Any


class _Loop(NamedTuple):
    """The carry of the compiled loop; scalars are int32 unless said."""

    written: jax.Array  # tokens so far
    private_count: jax.Array  # t in PP Algorithm 1
    place: _Place
    tokens: jax.Array  # [max_batch_tokens]
    is_private: jax.Array  # [max_batch_tokens] bool
    losses: jax.Array | None  # [2, max_batch_tokens]; of the median alone
    # With individual accounting alone:
    accounts: Any  # what each row has spent
    charged: jax.Array | None  # [max_batch_tokens, rows]
    voted: jax.Array | None  # [max_batch_tokens, rows] bool


_STOP_START = np.uint8(0)
# Public rows that a worker keeps: those of the labels that it works on by turns.
_KEPT_REFERENCES = 8


# Padding rows hold one token.
_PADDING = np.array([1], np.int32)


def _prefill(decoder: decoder_lib.Decoder, private_prompts: Sequence[np.ndarray]) -> _Prompts:
    """Runs the private prompts in whole micro-batches; padding rows vote for nothing."""
    size, rows = decoder.shapes.micro_batch_size, len(private_prompts)
    count = decoder.shapes.micro_batches(rows) * size
    states, cache = decoder.prefill([*private_prompts, *[_PADDING] * (count - rows)])
    is_private = np.arange(count) < rows
    return _Prompts(states, tuple(jnp.asarray(is_private.reshape(-1, size))), cache)


def prefill_public(decoder: decoder_lib.Decoder, prompts: Sequence[np.ndarray]) -> PublicRows:
    """Runs the public prompt, or those of a reference, in rows of their own.

    No private row shares a program with them, so they are the same bits whatever the batch.

    Args:
        decoder: The model.
        prompts: M >= 1 prompts as token ids.
    """
    multiple = decoder.shapes.rows_multiple
    count = -(-len(prompts) // multiple) * multiple
    (states,), cache = decoder.prefill([*prompts, *[_PADDING] * (count - len(prompts))], together=count)
    return PublicRows(states, cache, len(prompts))


def _advance(
    place: _Place,
    token: jax.Array,
    *,
    weights: Any,
    first: Any,
    see: Callable[[tuple[jax.Array, ...], Any], Any],
    constraint: Constraint,
    stop_table: jax.Array,
    decoder: decoder_lib.Decoder,
    params: MechanismParams,
) -> _Place:
    """The place after a token: further in the example, or at the prompts' end again.

    The one step of every token stream, of a run's compiled loop and of a replay.

    Args:
        place: Where the token was chosen.
        token: int32 scalar.
        weights: The decoder's.
        first: What `see` makes of the states after the prompts.
        see: What is kept of a position, from its states and the state of the constraint there.
        constraint: Which tokens may come; begins anew with every example.
        stop_table: `StopRule.table`, which says where an example ends.
        decoder: The model.
        params: Of which the length cap ends an example.
    """
    stop_state = stop_table[place.stop_state, token]
    ended = (stop_state == stop_table.shape[0]) | (place.offset + 1 >= params.max_example_tokens)
    # The step after an example's last token is computed and thrown away: a
    # branch around it would make the compiler copy the cache at every token.
    states, cache = decoder.step(weights, place.cache, token, place.offset)
    state = constraint.advance(place.state, token)
    start = (jnp.int32(0), constraint.start(), _STOP_START, first)
    begun = (place.offset + 1, state, stop_state, see(states, state))
    offset, state, stop_state, seen = jax.tree.map(
        lambda anew, further: jnp.where(ended, anew, further), start, begun
    )
    return _Place(offset=offset, state=state, stop_state=stop_state, seen=seen, cache=cache)


def _all_logits(
    decoder: decoder_lib.Decoder, weights: Any, states: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """`[m, V]` for every micro-batch."""
    return tuple(decoder.logits(weights, part) for part in states)


@functools.partial(jax.jit, static_argnames=('public_count', 'decoder', 'params'), donate_argnames=('cache',))
def _run_loop(
    weights: Any,
    cache: tuple[Any, ...],
    first_states: tuple[jax.Array, ...],
    public_cache: tuple[Any, ...],
    public_states: tuple[jax.Array, ...],
    is_private_row: tuple[jax.Array, ...],
    constraint: Constraint,
    stop_table: jax.Array,
    threshold_noise: jax.Array,
    distance_noise: jax.Array,
    words: jax.Array,
    *,
    public_count: int,
    decoder: decoder_lib.Decoder,
    params: MechanismParams,
) -> _Loop:
    """The while loop of PP Algorithm 1, lines 6 to 21, for one batch.

    The whole carry is returned, so that the cache's buffers can be those of the donated one. Public
    rows come first in it; theirs are kept for other batches, and not donated.
    """

    output = functools.partial(decoder.logits, weights)

    def tally(states: tuple[jax.Array, ...], state: Any) -> mechanism.Votes:
        public = states[0][:public_count] if public_count else None
        rows = states[len(public_states) :]
        return mechanism.tally(public, rows, is_private_row, constraint.allowed(state), params, output)

    first = tally((*public_states, *first_states), constraint.start())

    def unfinished(loop: _Loop) -> jax.Array:
        return (loop.private_count < params.private_token_cap) & (loop.written < params.max_batch_tokens)

    def next_token(loop: _Loop) -> _Loop:
        votes, accounts, receipt = mechanism.settle(loop.place.seen, loop.accounts, params)
        charged, voted = loop.charged, loop.voted
        if charged is not None and voted is not None:
            charged = charged.at[loop.written].set(jnp.concatenate(receipt.charged))
            voted = voted.at[loop.written].set(jnp.concatenate(receipt.voted))
        token, is_private = mechanism.choose_token(
            votes,
            threshold_noise[loop.private_count],
            distance_noise[loop.written],
            words[loop.written],
            params,
        )
        losses = loop.losses
        if losses is not None:
            pair = mechanism.token_losses(votes, token, params)
            assert pair is not None  # `is_ex_post`
            # A public token is free.
            losses = losses.at[:, loop.written].set(jnp.where(is_private, pair, 0.0))
        return _Loop(
            written=loop.written + 1,
            private_count=loop.private_count + is_private.astype(jnp.int32),
            place=_advance(
                loop.place,
                token,
                weights=weights,
                first=first,
                see=tally,
                constraint=constraint,
                stop_table=stop_table,
                decoder=decoder,
                params=params,
            ),
            tokens=loop.tokens.at[loop.written].set(token),
            is_private=loop.is_private.at[loop.written].set(is_private),
            losses=losses,
            accounts=accounts,
            charged=charged,
            voted=voted,
        )

    zero = jnp.int32(0)
    rows = tuple(len(part) for part in is_private_row)
    receipts = (params.max_batch_tokens, sum(rows)) if params.is_individual else None
    start = _Loop(
        written=zero,
        private_count=zero,
        place=_Place(
            offset=zero,
            state=constraint.start(),
            stop_state=jnp.asarray(_STOP_START),
            seen=first,
            cache=(*public_cache, *cache),
        ),
        tokens=jnp.zeros(params.max_batch_tokens, jnp.int32),
        is_private=jnp.zeros(params.max_batch_tokens, bool),
        losses=jnp.zeros((2, params.max_batch_tokens), jnp.float32) if params.is_ex_post else None,
        accounts=params.strategy.open_accounts(rows),
        charged=None if receipts is None else jnp.zeros(receipts, jnp.float32),
        voted=None if receipts is None else jnp.zeros(receipts, bool),
    )
    return jax.lax.while_loop(unfinished, next_token, start)


def decode_stream(
    decoder: decoder_lib.Decoder,
    public: PublicRows | None,
    private_prompts: list[np.ndarray],
    *,
    params: MechanismParams,
    draws: randomness.BatchDraws,
    constraint: Constraint,
    stop_rule: StopRule,
) -> TokenStream:
    """Decodes one batch's whole token stream (PP Algorithm 1, lines 4 to 21).

    Args:
        decoder: The model.
        public: The public prompt or a reference, of `prefill_public`; None where
            `params.needs_public_logits` is False.
        private_prompts: Token ids, one prompt for each context; may be empty.
        params: The mechanism. `max_example_tokens` may not exceed the decoder's shape.
        draws: The batch's randomness.
        constraint: Which tokens may be sampled, stop tokens among them.
        stop_rule: What ends an example.

    Returns:
        At most `max_batch_tokens` tokens, of which at most `max_private_tokens` are private.
    """
    if params.needs_public_logits != (public is not None):
        raise ValueError(
            'Expected public rows exactly where the mechanism reads public logits, got '
            f'needs_public_logits={params.needs_public_logits}, '
            f'public given={public is not None}. Give them, or leave them out.'
        )
    if params.max_example_tokens > decoder.shapes.max_example_tokens:
        raise ValueError(
            'Expected max_example_tokens to fit into the cache, got '
            f'max_example_tokens={params.max_example_tokens}, '
            f'cache for {decoder.shapes.max_example_tokens}. Build the decoder with the same cap.'
        )
    _check_fits(constraint, stop_rule, decoder)
    if params.is_individual and len(private_prompts) > individual.most_contexts(params.clip_bound):
        # The number of contexts in a batch is private, so the text does not give it.
        raise MemoryError(
            'Expected the votes of a batch to add up within 32 bits, got batch rows that need more. '
            'Lower clip_bound or batch_size.'
        )
    prompts = _prefill(decoder, private_prompts)
    words = np.stack([draws.token_words >> np.uint64(32), draws.token_words & np.uint64(2**32 - 1)], axis=-1)
    loop = _run_loop(
        decoder.weights,
        prompts.cache,
        prompts.states,
        () if public is None else public.cache,
        () if public is None else (public.states,),
        prompts.is_private,
        constraint,
        jnp.asarray(stop_rule.table),
        jnp.asarray(draws.threshold_noise, jnp.float32),
        jnp.asarray(draws.distance_noise, jnp.float32),
        jnp.asarray(words.astype(np.uint32)),
        public_count=0 if public is None else public.prompts,
        decoder=decoder,
        params=params,
    )
    end, contexts = int(loop.written), len(private_prompts)
    spending = None
    if loop.charged is not None:
        # Padding rows come last.
        receipts = (np.asarray(part)[:end, :contexts] for part in (loop.charged, loop.voted))
        spending = individual.Spending(*receipts)
    return TokenStream(
        np.asarray(loop.tokens)[:end],
        np.asarray(loop.is_private)[:end],
        None if loop.losses is None else np.asarray(loop.losses)[:, :end],
        spending,
    )


class Position(NamedTuple):
    """What the loop sees before it chooses a token, on the host.

    Attributes:
        logits: `[contexts, V]` float32, raw, of the private prompts in their order.
        public_logits: `[V]` float32, of the public prompt or the reference; zeros where none is run.
        example: Number of the current example, from 0.
        place: Tokens of the current example before this one.
        mask: `[V]` bool, the tokens that the constraint allows here.
    """

    logits: np.ndarray
    public_logits: np.ndarray
    example: int
    place: int
    mask: np.ndarray


def walk(
    decoder: decoder_lib.Decoder,
    public: PublicRows | None,
    private_prompts: Sequence[np.ndarray],
    *,
    params: MechanismParams,
    constraint: Constraint,
    stop_rule: StopRule,
) -> Generator[Position, int, None]:
    """The steps of `decode_stream` one by one, for audits: whoever walks says which token follows.

    Yields the position of every token and is sent the token, until it is closed. Nothing of the
    mechanism is applied: the logits are those of real prompts, and stay with the curator.

    Args:
        decoder: The model.
        public: As of `decode_stream`.
        private_prompts: As of `decode_stream`.
        params: Of which the length cap ends an example.
        constraint: Whose masks are shown; a token that is sent need not keep to them.
        stop_rule: What ends an example.
    """
    _check_fits(constraint, stop_rule, decoder)
    prompts = _prefill(decoder, private_prompts)
    stop_table = jnp.asarray(stop_rule.table)
    states = prompts.states if public is None else (public.states, *prompts.states)
    # The loop gives its cache away, and that of public rows is not the loop's own.
    kept = () if public is None else jax.tree.map(jnp.copy, public.cache)
    first = jax.jit(_all_logits, static_argnums=0)(decoder, decoder.weights, states)
    place = _Place(jnp.int32(0), constraint.start(), jnp.asarray(_STOP_START), first, (*kept, *prompts.cache))
    example = 0
    while True:
        seen = [np.asarray(part, np.float32) for part in place.seen]
        reference = np.zeros(decoder.vocab_size, np.float32)
        if public is not None:
            reference = np.asarray(mechanism.reference_logits(jnp.asarray(seen.pop(0)[: public.prompts])))
        token = yield Position(
            logits=np.concatenate(seen)[: len(private_prompts)],
            public_logits=reference,
            example=example,
            place=int(place.offset),
            mask=np.asarray(constraint.allowed(place.state)),
        )
        place = _walk_on(
            decoder.weights, place.cache, place.offset, place.state, place.stop_state, jnp.int32(token),
            first, constraint, stop_table, decoder=decoder, params=params,
        )  # fmt: skip
        example += int(place.offset) == 0


@functools.partial(jax.jit, static_argnames=('decoder', 'params'), donate_argnames=('cache',))
def _walk_on(
    weights: Any,
    cache: Any,
    offset: jax.Array,
    state: Any,
    stop_state: jax.Array,
    token: jax.Array,
    first: tuple[jax.Array, ...],
    constraint: Constraint,
    stop_table: jax.Array,
    *,
    decoder: decoder_lib.Decoder,
    params: MechanismParams,
) -> _Place:
    """`_advance` of one token by itself, with all logits kept."""
    return _advance(
        _Place(offset, state, stop_state, first, cache), token, weights=weights, first=first,
        see=lambda states, _: _all_logits(decoder, weights, states), constraint=constraint,
        stop_table=stop_table, decoder=decoder, params=params,
    )  # fmt: skip


def _check_fits(constraint: Constraint, stop_rule: StopRule, decoder: decoder_lib.Decoder) -> None:
    masked = jax.eval_shape(lambda: constraint.allowed(constraint.start()))
    if masked.shape != (decoder.vocab_size,):
        raise ValueError(
            f"Expected a constraint of the model's {decoder.vocab_size} tokens, got a mask of shape="
            f'{masked.shape}. Build it for this vocabulary.'
        )
    if stop_rule.table.shape[1] != decoder.vocab_size:
        raise ValueError(
            f"Expected a stop rule of the model's {decoder.vocab_size} tokens, got a table of shape="
            f'{stop_rule.table.shape}. Build it for this vocabulary.'
        )


def _ends(tokens: np.ndarray, stop_rule: StopRule, max_example_tokens: int) -> Iterator[tuple[bool, bool]]:
    """For every token of a stream: whether the stop rule ends an example there, and whether anything does."""
    state, place = _STOP_START, 0
    for token in tokens.tolist():
        state, place = stop_rule.table[state, token], place + 1
        stopped = bool(state == stop_rule.ended)
        ended = stopped or place == max_example_tokens
        yield stopped, ended
        if ended:
            state, place = _STOP_START, 0


def split_examples(
    stream: TokenStream, *, stop_rule: StopRule, max_example_tokens: int
) -> list[ExampleTokens]:
    """Cuts a token stream into examples where a stop token, a stop text or the length cap ended one.

    A function of released tokens alone. What is left after the last end is an
    example too, and truncated.
    """
    examples, start = [], 0
    for position, (stopped, ended) in enumerate(_ends(stream.tokens, stop_rule, max_example_tokens)):
        if ended or position + 1 == len(stream.tokens):
            ids = stream.tokens[start : position + 1].tolist()
            private = int(stream.is_private[start : position + 1].sum())
            examples.append(
                ExampleTokens(
                    tuple(ids[:-1] if ids[-1] in stop_rule.tokens else ids),
                    private,
                    len(ids) - private,
                    truncated=not stopped,
                )
            )
            start = position + 1
    return examples


def places_in_examples(
    tokens: np.ndarray, *, stop_rule: StopRule, max_example_tokens: int
) -> tuple[int, ...]:
    """Place of every token of a stream within its example, from 0, the stop token counted."""
    places, place = [], 0
    for _, ended in _ends(tokens, stop_rule, max_example_tokens):
        places.append(place)
        place = 0 if ended else place + 1
    return tuple(places)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratedBatch:
    """What decoding one batch gives: what may be released, and what may not.

    Attributes:
        examples: The batch's synthetic examples.
        loss: The batch's losses, restricted to the curator; None where the aggregate has
            a price in advance.
        spending: What its contexts spent, restricted to the curator; None without individual
            accounting.
    """

    examples: list[records.SyntheticExample]
    loss: ex_post.BatchLoss | None = dataclasses.field(default=None, repr=False)
    spending: individual.BatchSpending | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class BatchGenerator:
    """Turns batches of one run into synthetic examples.

    Holds no private text: contexts pass through `generate` and leave nothing behind.

    Attributes:
        decoder: The model.
        writer: Prompts as token ids, and text from token ids.
        params: The mechanism.
        run_id: The public name of the run.
    """

    decoder: decoder_lib.Decoder
    writer: PromptWriter
    params: MechanismParams
    run_id: str

    @functools.cached_property
    def stop_rule(self) -> StopRule:
        """What ends an example."""
        return self.writer.stop_rule(self.decoder.vocab_size)

    def draws(self, batch: records.Batch, key: randomness.RunKey) -> randomness.BatchDraws:
        """The randomness of a batch: a function of its name, the key and the run id alone."""
        return randomness.batch_draws(
            key,
            self.run_id,
            str(batch.batch_id),
            max_private_tokens=self.params.private_token_cap,
            max_batch_tokens=self.params.max_batch_tokens,
            threshold_noise_scale=self.params.threshold_noise_scale,
            levels=sampling.tree_levels(candidates.count(self.params.public_top_k, self.decoder.vocab_size)),
        )

    def constraint(self) -> Constraint:
        """What a run's tokens are restricted to: those that text may contain, and the stop tokens."""
        return Vocabulary.of(self.writer.released_tokens(self.decoder.vocab_size))

    @functools.cached_property
    def _public_rows(self) -> collections.OrderedDict[Any, PublicRows]:
        """The last few that were used, by label and reference, the latest last."""
        return collections.OrderedDict()

    def public_rows(self, label: str | None, reference: Sequence[str] = ()) -> PublicRows | None:
        """The public rows of a label's batches, which go through the model once for many of them.

        Args:
            label: The batches' label.
            reference: Public texts, each of which stands in a private prompt of its own (METHOD 4c);
                without any the public prompt is the one row.

        Returns:
            None where no public logits are read.
        """
        if not self.params.needs_public_logits:
            return None
        name, known = (label, tuple(reference)), self._public_rows
        found = known.pop(name, None)
        if found is None:
            contexts = [records.Context(context_hash=b'', texts=(text,)) for text in reference]
            prompts = self.writer.private_prompts(label, contexts) or [self.writer.public_prompt(label)]
            found = prefill_public(self.decoder, prompts)
        known[name] = found
        while len(known) > _KEPT_REFERENCES:
            known.popitem(last=False)
        return found

    def decode(
        self,
        batch: records.Batch,
        draws: randomness.BatchDraws,
        constraint: Constraint | None = None,
        reference: Sequence[str] = (),
    ) -> TokenStream:
        """The token stream of a batch.

        Args:
            batch: Its contexts in the order of their keyed hashes.
            draws: Its randomness.
            constraint: Which tokens may be sampled; None for that of a run.
            reference: Public or released texts of its genre (METHOD 4c).
        """
        return decode_stream(
            self.decoder,
            self.public_rows(batch.label, reference),
            self.writer.private_prompts(batch.label, batch.contexts),
            params=self.params,
            draws=draws,
            constraint=self.constraint() if constraint is None else constraint,
            stop_rule=self.stop_rule,
        )

    def generate(
        self, batch: records.Batch, key: randomness.RunKey, reference: Sequence[str] = ()
    ) -> GeneratedBatch:
        """Decodes one batch; a function of the batch, the reference, the key and the run id alone.

        Args:
            batch: Its contexts in the order of their keyed hashes. An empty batch is
                decoded like any other (METHOD 2).
            key: The run's secret.
            reference: Public or released texts of its genre (METHOD 4c).
        """
        batch_id = str(batch.batch_id)
        stream = self.decode(batch, self.draws(batch, key), reference=reference)
        examples = split_examples(
            stream, stop_rule=self.stop_rule, max_example_tokens=self.params.max_example_tokens
        )
        texts = self.writer.texts([example.tokens for example in examples])
        released = [
            records.SyntheticExample(
                text=text,
                label=batch.label,
                batch_id=batch_id,
                index_in_batch=index,
                private_tokens=example.private_tokens,
                public_tokens=example.public_tokens,
                truncated=example.truncated,
            )
            for index, (text, example) in enumerate(zip(texts, examples, strict=True))
        ]
        loss = None
        if stream.losses is not None:
            loss = ex_post.BatchLoss(
                batch_id=batch_id,
                minus_log_alpha=tuple(stream.losses[0].tolist()),
                log_beta=tuple(stream.losses[1].tolist()),
                places=places_in_examples(
                    stream.tokens,
                    stop_rule=self.stop_rule,
                    max_example_tokens=self.params.max_example_tokens,
                ),
                is_private=tuple(stream.is_private.tolist()),
            )
        spending = None
        if stream.spending is not None:
            spending = individual.BatchSpending.of(batch_id, stream.spending)
        return GeneratedBatch(examples=released, loss=loss, spending=spending)
