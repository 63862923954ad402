"""One batch, from contexts to synthetic examples: the loop of PP Algorithm 1, on the device.

The loop is one compiled program without a host round trip per token: it carries the
cache, the threshold, the counters and the tokens written so far, and reads its
randomness from arrays that were drawn before it started. A step of it chooses one token;
where a structure leaves no choice of those behind it, they go through the model with it.
About once a second the loop comes back to the host and goes on, so that a display can
say how far it is.
"""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import activity, records
from models.constraints import Constraint, Grammar
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
        is_forced: `[n]` bool, tokens that nobody chose, for the constraint allowed no other; None where
            it always leaves a choice.
    """

    tokens: np.ndarray
    is_private: np.ndarray
    losses: np.ndarray | None = None
    spending: individual.Spending | None = None
    is_forced: np.ndarray | None = None

    @property
    def is_chosen(self) -> np.ndarray:
        """`[n]` bool, the tokens that somebody chose."""
        return np.ones(len(self.tokens), bool) if self.is_forced is None else ~self.is_forced


@dataclasses.dataclass(frozen=True)
class ExampleTokens:
    """One example cut from a token stream.

    Attributes:
        tokens: Its ids, without the stop token; a stop text is still among them.
        private_tokens: Private tokens, the stop token counted.
        public_tokens: Public tokens, the stop token counted.
        truncated: Whether neither a stop token nor a stop text ended it.
        forced_tokens: Tokens that were no choice, the stop token counted.
    """

    tokens: tuple[int, ...]
    private_tokens: int
    public_tokens: int
    truncated: bool
    forced_tokens: int = 0


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

    example: jax.Array  # int32 scalar, number of the current example
    offset: jax.Array  # int32 scalar, tokens of the current example before the next one
    state: Any  # of the constraint
    stop_state: jax.Array  # uint8 scalar, of the stop rule
    seen: Any  # what the loop keeps of the position's states: a run its votes, a replay all logits
    cache: Any


class _Step(NamedTuple):
    """A token and the forced ones behind it, which go through the model together."""

    tokens: jax.Array  # [R] int32
    length: jax.Array  # int32 scalar, 1 to R tokens; what lies behind them means nothing
    state: Any  # of the constraint, after the last of them
    stop_state: jax.Array  # uint8 scalar, after the last of them
    ended: jax.Array  # bool scalar, whether the last of them ended the example


class _Loop(NamedTuple):
    """The carry of the compiled loop; scalars are int32 unless said."""

    written: jax.Array  # tokens so far
    private_count: jax.Array  # t in PP Algorithm 1
    place: _Place
    tokens: jax.Array  # [max_batch_tokens]
    is_private: jax.Array  # [max_batch_tokens] bool
    is_forced: jax.Array | None  # [max_batch_tokens] bool; of a constraint that may leave no choice alone
    losses: jax.Array | None  # [2, max_batch_tokens]; of the median alone
    # With individual accounting alone:
    accounts: Any  # what each row has spent
    charged: jax.Array | None  # [max_batch_tokens, rows]
    voted: jax.Array | None  # [max_batch_tokens, rows] bool


class _Chosen(NamedTuple):
    """One token, and what its choice leaves behind."""

    token: jax.Array  # int32 scalar
    is_private: jax.Array  # bool scalar
    losses: jax.Array | None  # [2]; of the median alone
    # With individual accounting alone:
    accounts: Any
    charged: jax.Array | None  # [rows]
    voted: jax.Array | None  # [rows] bool


# Is told what is going on, in words, and how many tokens there are so far.
Watch = Callable[[str, int], None]

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


def _step_of(
    place: _Place,
    token: jax.Array,
    *,
    most: int,
    room: jax.Array,
    constraint: Constraint,
    stop_table: jax.Array,
    params: MechanismParams,
) -> _Step:
    """A token with the forced ones behind it, up to the example's end or R tokens.

    A function of public settings and released tokens alone, so a batch is cut into the same steps
    whenever it is decoded.

    Args:
        place: Where the token was chosen.
        token: int32 scalar.
        most: R.
        room: Tokens that a cap leaves, the first one counted; int32 scalar, at least 1.
        constraint: Which tokens may come.
        stop_table: `StopRule.table`, which says where an example ends.
        params: Of which the length cap ends an example.
    """

    def with_token(step: _Step, token: jax.Array) -> _Step:
        stop_state, length = stop_table[step.stop_state, token], step.length + 1
        is_stop = stop_state == stop_table.shape[0]
        return _Step(
            tokens=step.tokens.at[step.length].set(token),
            length=length,
            state=constraint.advance(step.state, token),
            stop_state=stop_state,
            ended=is_stop | (place.offset + length >= params.max_example_tokens),
        )

    def forced(step: _Step) -> jax.Array:
        found = constraint.forced(step.state)
        assert found is not None, 'only then is there more than one token'
        return found

    def goes_on(step: _Step) -> jax.Array:
        return ~step.ended & (step.length < jnp.minimum(most, room)) & (forced(step) >= 0)

    nothing = _Step(
        jnp.zeros(most, jnp.int32), jnp.int32(0), place.state, place.stop_state, ended=jnp.bool_(False)
    )
    step = with_token(nothing, token)
    if most == 1:
        return step
    return jax.lax.while_loop(goes_on, lambda step: with_token(step, forced(step)), step)


def _advance(
    place: _Place,
    step: _Step,
    *,
    weights: Any,
    first: tuple[jax.Array, ...],
    see: Callable[[tuple[jax.Array, ...], Any], Any],
    constraint: Constraint,
    decoder: decoder_lib.Decoder,
) -> _Place:
    """The place after a step: further in the example, or at the prompts' end again.

    The one step of every token stream, of a run's compiled loop and of a replay.

    Args:
        place: Where the first token was chosen.
        step: Of `_step_of`.
        weights: The decoder's.
        first: The states after the prompts.
        see: What is kept of a position, from its states and the state of the constraint there.
        constraint: Begins anew with every example, each of which may begin in a state of its own.
        decoder: The model.
    """
    # The step after an example's last token is computed and thrown away, so one token of it will do: a
    # branch around it would make the compiler copy the cache at every token.
    count = jnp.where(step.ended, 1, step.length)
    states, cache = decoder.append(weights, place.cache, step.tokens, count, place.offset)
    example = place.example + step.ended.astype(jnp.int32)
    start = (jnp.int32(0), constraint.start(example), _STOP_START, first)
    begun = (place.offset + step.length, step.state, step.stop_state, states)
    offset, state, stop_state, states = jax.tree.map(
        lambda anew, further: jnp.where(step.ended, anew, further), start, begun
    )
    return _Place(
        example=example,
        offset=offset,
        state=state,
        stop_state=stop_state,
        seen=see(states, state),
        cache=cache,
    )


def _mask_of(constraint: Constraint, state: Any) -> jax.Array | candidates.Narrowed:
    """The mask of a step, as votes read it."""
    if not constraint.narrows_predictions:
        return constraint.allowed(state)
    return candidates.Narrowed(
        functools.partial(constraint.allowed, state), functools.partial(constraint.allowed_among, state)
    )


def _all_logits(
    decoder: decoder_lib.Decoder, weights: Any, states: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """`[m, V]` for every micro-batch."""
    return tuple(decoder.logits(weights, part) for part in states)


@functools.partial(jax.jit, static_argnames=('public_count', 'decoder', 'params'), donate_argnames=('begun',))
def _run_loop(
    weights: Any,
    begun: _Loop | tuple[Any, ...],
    until: jax.Array,
    states: tuple[jax.Array, ...],
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
    """The while loop of PP Algorithm 1, lines 6 to 21, for one batch: its start, or a stretch of it.

    The whole carry is returned, so that the cache's buffers can be those of the donated one.

    Args:
        weights: The decoder's.
        begun: The cache after the prompts, public rows first, for the start; then what the call before
            returned. It is donated.
        until: Tokens of the batch at which the stretch ends, with the step that reaches them; int32 scalar.
        states: After the prompts, public rows first.
        is_private_row: `[m]` bool for every micro-batch of private rows.
        constraint: Which tokens may be sampled.
        stop_table: `StopRule.table`.
        threshold_noise: The batch's.
        distance_noise: The batch's.
        words: The batch's.
        public_count: Public rows that are no padding; 0 where there are none.
        decoder: The model.
        params: The mechanism.
    """

    output = functools.partial(decoder.logits, weights)

    def tally(states: tuple[jax.Array, ...], state: Any) -> mechanism.Votes:
        public = states[0][:public_count] if public_count else None
        rows = states[len(states) - len(is_private_row) :]

        def votes() -> mechanism.Votes:
            return mechanism.tally(public, rows, is_private_row, _mask_of(constraint, state), params, output)

        forced = constraint.forced(state)
        if forced is None:
            return votes()
        # Nobody votes on a forced token, nor is a logit computed.
        nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), jax.eval_shape(votes))
        return jax.lax.cond(forced < 0, votes, lambda: nothing)

    def unfinished(loop: _Loop) -> jax.Array:
        return _is_unfinished(loop, params) & (loop.written < until)

    def vote(loop: _Loop) -> _Chosen:
        votes, accounts, receipt = mechanism.settle(loop.place.seen, loop.accounts, params)
        token, is_private = mechanism.choose_token(
            votes,
            threshold_noise[loop.private_count],
            distance_noise[loop.written],
            words[loop.written],
            params,
        )
        losses = mechanism.token_losses(votes, token, params)
        return _Chosen(
            token=token,
            is_private=is_private,
            # A public token is free.
            losses=None if losses is None else jnp.where(is_private, losses, 0.0),
            accounts=accounts,
            charged=None if receipt is None else jnp.concatenate(receipt.charged),
            voted=None if receipt is None else jnp.concatenate(receipt.voted),
        )

    def emit(loop: _Loop, token: jax.Array) -> _Chosen:
        """A forced token: no vote, no test, no price."""

        def nothing(of: jax.Array | None, axis: int) -> jax.Array | None:
            return None if of is None else jnp.zeros(of.shape[axis], of.dtype)

        return _Chosen(
            token=token,
            is_private=jnp.bool_(False),
            losses=nothing(loop.losses, 0),
            accounts=loop.accounts,
            charged=nothing(loop.charged, 1),
            voted=nothing(loop.voted, 1),
        )

    def next_step(loop: _Loop) -> _Loop:
        forced, is_forced = constraint.forced(loop.place.state), loop.is_forced
        if forced is None or is_forced is None:
            most, chosen = 1, vote(loop)
        else:
            most = decoder.shapes.step_tokens
            chosen = jax.lax.cond(forced < 0, lambda: vote(loop), lambda: emit(loop, forced))
        private_count = loop.private_count + chosen.is_private.astype(jnp.int32)
        step = _step_of(
            loop.place,
            chosen.token,
            most=most,
            # Nothing follows the last private token.
            room=jnp.where(
                private_count < params.private_token_cap, params.max_batch_tokens - loop.written, 1
            ),
            constraint=constraint,
            stop_table=stop_table,
            params=params,
        )
        # What lies behind the step's tokens is written anew, or cut off with the batch.
        places = loop.written + jnp.arange(most)
        if forced is not None and is_forced is not None:
            is_forced = is_forced.at[places].set((forced >= 0) | (jnp.arange(most) > 0), mode='drop')

        def with_row(of: jax.Array | None, row: jax.Array | None) -> jax.Array | None:
            return of if of is None or row is None else of.at[loop.written].set(row)

        losses = loop.losses
        if losses is not None and chosen.losses is not None:
            losses = losses.at[:, loop.written].set(chosen.losses)
        return _Loop(
            written=loop.written + step.length,
            private_count=private_count,
            place=_advance(
                loop.place,
                step,
                weights=weights,
                first=states,
                see=tally,
                constraint=constraint,
                decoder=decoder,
            ),
            tokens=loop.tokens.at[places].set(step.tokens, mode='drop'),
            is_private=loop.is_private.at[loop.written].set(chosen.is_private),
            is_forced=is_forced,
            losses=losses,
            accounts=chosen.accounts,
            charged=with_row(loop.charged, chosen.charged),
            voted=with_row(loop.voted, chosen.voted),
        )

    if isinstance(begun, _Loop):
        return jax.lax.while_loop(unfinished, next_step, begun)
    zero = jnp.int32(0)
    rows = tuple(len(part) for part in is_private_row)
    receipts = (params.max_batch_tokens, sum(rows)) if params.is_individual else None
    return _Loop(
        written=zero,
        private_count=zero,
        place=_Place(
            example=zero,
            offset=zero,
            state=constraint.start(),
            stop_state=jnp.asarray(_STOP_START),
            seen=tally(states, constraint.start()),
            cache=begun,
        ),
        tokens=jnp.zeros(params.max_batch_tokens, jnp.int32),
        is_private=jnp.zeros(params.max_batch_tokens, bool),
        is_forced=None
        if constraint.forced(constraint.start()) is None
        else jnp.zeros(params.max_batch_tokens, bool),
        losses=jnp.zeros((2, params.max_batch_tokens), jnp.float32) if params.is_ex_post else None,
        accounts=params.strategy.open_accounts(rows),
        charged=None if receipts is None else jnp.zeros(receipts, jnp.float32),
        voted=None if receipts is None else jnp.zeros(receipts, bool),
    )


def _is_unfinished(loop: _Loop, params: MechanismParams) -> jax.Array:
    return (loop.private_count < params.private_token_cap) & (loop.written < params.max_batch_tokens)


# Seconds of a stretch of the loop, about.
_STRETCH_SECONDS = 1.0


def _decode_in_stretches(
    run: Callable[[Any, jax.Array], _Loop], cache: Any, params: MechanismParams, watch: Watch
) -> _Loop:
    """Runs the loop to its end, about a second at a time.

    How tokens are cut into stretches changes no bit: it is one program, and its state is carried.

    Args:
        run: `_run_loop` of one batch: `begun` and `until` to what has begun.
        cache: After the prompts, public rows first; taken over.
        params: The mechanism.
        watch: Is told the tokens so far.
    """
    watch('Compiling', 0)
    loop = run(cache, jnp.int32(0))
    # The first token of a shape waits for the compiler, and so says nothing of the next ones' pace.
    tokens, until = 0, 1
    pace: float | None = None
    while bool(_is_unfinished(loop, params)):
        watch('Decoding' if tokens else 'Compiling', tokens)
        started = time.monotonic()
        loop = run(loop, jnp.int32(until))
        before, tokens = tokens, int(loop.written)
        if before:
            pace = (time.monotonic() - started) / (tokens - before)
        stretch = 1 if pace is None else max(1, int(_STRETCH_SECONDS / max(pace, 1e-6)))
        until = min(tokens + stretch, params.max_batch_tokens)
    return loop


def decode_stream(
    decoder: decoder_lib.Decoder,
    public: PublicRows | None,
    private_prompts: list[np.ndarray],
    *,
    params: MechanismParams,
    draws: randomness.BatchDraws,
    constraint: Constraint,
    stop_rule: StopRule,
    watch: Watch = lambda doing, tokens: None,
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
        watch: Is told what is going on and the tokens so far, about once a second.

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
    watch('Reading prompts', 0)
    prompts = _prefill(decoder, private_prompts)
    words = np.stack([draws.token_words >> np.uint64(32), draws.token_words & np.uint64(2**32 - 1)], axis=-1)
    # Public rows are kept for other batches, and the loop takes over its cache.
    public_cache = () if public is None else jax.tree.map(jnp.copy, public.cache)
    states = prompts.states if public is None else (public.states, *prompts.states)
    arrays = (
        jnp.asarray(stop_rule.table),
        jnp.asarray(draws.threshold_noise, jnp.float32),
        jnp.asarray(draws.distance_noise, jnp.float32),
        jnp.asarray(words.astype(np.uint32)),
    )

    def run(begun: Any, until: jax.Array) -> _Loop:
        return _run_loop(
            decoder.weights, begun, until, states, prompts.is_private, constraint, *arrays,
            public_count=0 if public is None else public.prompts, decoder=decoder, params=params,
        )  # fmt: skip

    loop = _decode_in_stretches(run, (*public_cache, *prompts.cache), params, watch)
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
        None if loop.is_forced is None else np.asarray(loop.is_forced)[:end],
    )


class Position(NamedTuple):
    """What the loop sees before it chooses a token, on the host.

    Attributes:
        logits: `[contexts, V]` float32, raw, of the private prompts in their order.
        public_logits: `[V]` float32, of the public prompt or the reference; zeros where none is run.
        example: Number of the current example, from 0.
        place: Tokens of the current example before this one.
        mask: `[V]` bool, the tokens that the constraint allows here.
        forced: The token that has to come here and that nobody votes on; None where there is a choice.
    """

    logits: np.ndarray
    public_logits: np.ndarray
    example: int
    place: int
    mask: np.ndarray
    forced: int | None


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
    place = _Place(
        example=jnp.int32(0),
        offset=jnp.int32(0),
        state=constraint.start(),
        stop_state=jnp.asarray(_STOP_START),
        seen=jax.jit(_all_logits, static_argnums=0)(decoder, decoder.weights, states),
        cache=(*kept, *prompts.cache),
    )
    while True:
        seen = [np.asarray(part, np.float32) for part in place.seen]
        reference = np.zeros(decoder.vocab_size, np.float32)
        if public is not None:
            reference = np.asarray(mechanism.reference_logits(jnp.asarray(seen.pop(0)[: public.prompts])))
        forced = constraint.forced(place.state)
        token = yield Position(
            logits=np.concatenate(seen)[: len(private_prompts)],
            public_logits=reference,
            example=int(place.example),
            place=int(place.offset),
            mask=np.asarray(constraint.allowed(place.state)),
            forced=None if forced is None or int(forced) < 0 else int(forced),
        )
        # The cache is given away, and logits of before are not needed.
        at, cache = place._replace(seen=(), cache=()), place.cache
        place = _walk_on(
            decoder.weights, cache, at, jnp.int32(token), states, constraint, stop_table,
            decoder=decoder, params=params,
        )  # fmt: skip


@functools.partial(jax.jit, static_argnames=('decoder', 'params'), donate_argnames=('cache',))
def _walk_on(
    weights: Any,
    cache: Any,
    place: _Place,
    token: jax.Array,
    first: tuple[jax.Array, ...],
    constraint: Constraint,
    stop_table: jax.Array,
    *,
    decoder: decoder_lib.Decoder,
    params: MechanismParams,
) -> _Place:
    """`_advance` by a token, with all logits kept."""
    place = place._replace(cache=cache)
    step = _step_of(
        place, token, most=1, room=jnp.int32(1), constraint=constraint, stop_table=stop_table, params=params
    )
    return _advance(
        place, step, weights=weights, first=first, constraint=constraint, decoder=decoder,
        see=lambda states, _: _all_logits(decoder, weights, states),
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
            forced = int((~stream.is_chosen[start : position + 1]).sum())
            examples.append(
                ExampleTokens(
                    tuple(ids[:-1] if ids[-1] in stop_rule.tokens else ids),
                    private,
                    len(ids) - private - forced,
                    truncated=not stopped,
                    forced_tokens=forced,
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

    def constraint(self, cells: Sequence[int] | None = None) -> Constraint:
        """What a run's tokens are restricted to: those that text may contain, and the stop tokens.

        Of these the ones that its structure allows, where it has one.

        Args:
            cells: The structure's cell of each example of a stream; None where it has but one.
        """
        found = self._constraint
        if cells is None:
            return found
        assert isinstance(found, Grammar), 'only a structure has cells'
        return found.of_cells(cells)

    def cells(self, batch: records.Batch) -> list[int] | None:
        """The structure's cell of every example that a batch may have; None where it has no cells."""
        if batch.turns is None:
            return None
        return batch.turns.cells(self.run_id, self.params.max_batch_tokens)

    @functools.cached_property
    def _constraint(self) -> Constraint:
        return self.writer.constraint(self.decoder.vocab_size)

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
        """The token stream of a batch; `models/activity.py` tells how far it is.

        Args:
            batch: Its contexts in the order of their keyed hashes.
            draws: Its randomness.
            constraint: Which tokens may be sampled; None for that of a run.
            reference: Public or released texts of its genre (METHOD 4c).
        """
        batch_id = str(batch.batch_id)

        def watch(doing: str, tokens: int) -> None:
            most = self.params.max_batch_tokens if tokens else 0
            activity.report(activity.Activity(doing, batch_id, tokens, most))

        watch('Reading public prompts', 0)
        return decode_stream(
            self.decoder,
            self.public_rows(batch.label, reference),
            self.writer.private_prompts(batch.label, batch.contexts),
            params=self.params,
            draws=draws,
            constraint=self.constraint(self.cells(batch)) if constraint is None else constraint,
            stop_rule=self.stop_rule,
            watch=watch,
        )

    def _texts(self, examples: Sequence[ExampleTokens], cells: Sequence[int] | None) -> list[str]:
        texts = self.writer.texts([example.tokens for example in examples])
        structure = self.writer.structure
        if structure is not None and structure.closes_truncated:
            cut = [index for index, example in enumerate(examples) if example.truncated]
            closed = self.writer.closed_texts(
                [examples[index].tokens for index in cut],
                None if cells is None else [cells[index] for index in cut],
            )
            for index, text in zip(cut, closed, strict=True):
                texts[index] = text
        return texts

    def _row(self, example: ExampleTokens) -> Callable[..., records.SyntheticExample]:
        """What makes the row of an example: with its forced tokens, where there may be any."""
        if self.writer.structure is None:
            return records.SyntheticExample
        return functools.partial(records.StructuredExample, forced_tokens=example.forced_tokens)

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
        texts = self._texts(examples, self.cells(batch))
        released = [
            self._row(example)(
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
        # Of a forced token there is neither.
        chosen = stream.is_chosen
        loss = None
        if stream.losses is not None:
            places = places_in_examples(
                stream.tokens, stop_rule=self.stop_rule, max_example_tokens=self.params.max_example_tokens
            )
            loss = ex_post.BatchLoss(
                batch_id=batch_id,
                minus_log_alpha=tuple(stream.losses[0, chosen].tolist()),
                log_beta=tuple(stream.losses[1, chosen].tolist()),
                places=tuple(np.array(places, int)[chosen].tolist()),
                is_private=tuple(stream.is_private[chosen].tolist()),
            )
        spending = None
        if stream.spending is not None:
            spending = individual.BatchSpending.of(
                batch_id, individual.Spending(*(part[chosen] for part in stream.spending))
            )
        return GeneratedBatch(examples=released, loss=loss, spending=spending)
