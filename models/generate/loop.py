"""The loop of METHOD 4 (PP Algorithm 1) for one batch, on the device.

The loop is one compiled program: no token waits for the host. It carries the cache, the number of private
tokens and the tokens written so far, and reads its randomness from arrays that were drawn before it
started. A step chooses one token; tokens that a structure forces go through the model together with the
token before them. About once a second the loop returns to the host and then continues, so that a display
can show progress.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import speed
from models import stop_rule as stop_rules
from models.constraints import Constraint
from models.decoders import decoder as decoder_lib
from models.generate import rows
from models.generate.rows import PublicRows
from models.generate.step import Place, Step, advance, check_fits, step_of
from models.generate.stream import TokenStream
from models.privacy import candidates, individual, mechanism, randomness, sparse_vector
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule

# Called with what the loop is doing, in words, and the number of tokens so far.
Watch = Callable[[str, int], None]

# Seconds between two returns to the host, roughly.
_STRETCH_SECONDS = 1.0


class _Loop(NamedTuple):
    """The carry of the compiled loop; scalars are int32 unless stated."""

    written: jax.Array  # tokens so far
    private_count: jax.Array  # t in METHOD 4
    place: Place
    tokens: jax.Array  # [max_batch_tokens]
    is_private: jax.Array  # [max_batch_tokens] bool
    is_forced: jax.Array | None  # [max_batch_tokens] bool; only for a constraint that can force tokens
    losses: jax.Array | None  # [2, max_batch_tokens]; only for the median
    # Only with individual accounting:
    accounts: Any  # what each row has spent
    charged: jax.Array | None  # [max_batch_tokens, rows]
    voted: jax.Array | None  # [max_batch_tokens, rows] bool


class _Chosen(NamedTuple):
    """One token, and what is recorded with it."""

    token: jax.Array  # int32 scalar
    is_private: jax.Array  # bool scalar
    losses: jax.Array | None  # [2]; only for the median
    # Only with individual accounting:
    accounts: Any
    charged: jax.Array | None  # [rows]
    voted: jax.Array | None  # [rows] bool


def decode_stream(
    decoder: decoder_lib.Decoder,
    public: PublicRows | None,
    private_prompts: Sequence[np.ndarray],
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
        public: The public prompt or a reference, from `rows.prefill_public`; None where
            `params.needs_public_logits` is False.
        private_prompts: Token ids, one prompt for each context; may be empty.
        params: The mechanism. `max_example_tokens` may not exceed the decoder's shape.
        draws: The batch's randomness.
        constraint: Tokens that may be sampled, stop tokens among them.
        stop_rule: The end of an example.
        watch: Called about once a second with what the loop is doing and the number of tokens so far.

    Returns:
        At most `max_batch_tokens` tokens, of which at most `max_private_tokens` are private.

    Raises:
        ValueError: Public rows, constraint, stop rule or lengths do not fit the mechanism or the model.
        MemoryError: The batch has more contexts than its votes have room for.
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
    check_fits(constraint, stop_rule, decoder)
    if len(private_prompts) > params.strategy.most_contexts(params):
        # The number of contexts in a batch is private, so the text does not give it.
        raise MemoryError(
            'Expected the votes of a batch to add up exactly, got more batch rows than a sum has room '
            'for. Plan more batches; with individual accounting, lower clip_bound.'
        )
    if params.uses_sparse_vector and decoder.vocab_size > sparse_vector.MOST_COLUMNS:
        raise ValueError(
            f'Expected a vocabulary of at most {sparse_vector.MOST_COLUMNS} tokens with the sparse-vector '
            f'test, got vocab_size={decoder.vocab_size}. Leave out threshold.'
        )
    watch('Reading prompts', 0)
    prompts = rows.prefill_batch(decoder, public, private_prompts)
    words = np.stack([draws.token_words >> np.uint64(32), draws.token_words & np.uint64(2**32 - 1)], axis=-1)
    public_count = 0 if public is None else public.prompts
    arrays = (
        jnp.asarray(stop_rule.table),
        jnp.asarray(sparse_vector.limbs(draws.threshold_noise)),
        jnp.asarray(sparse_vector.limbs(draws.distance_noise)),
        jnp.asarray(words.astype(np.uint32)),
    )

    def run(begun: _Loop, until: jax.Array) -> _Loop:
        return _run_loop(
            decoder.weights, begun, until, prompts.states, prompts.is_private, constraint, *arrays,
            public_count=public_count, decoder=decoder, params=params,
        )  # fmt: skip

    begun = _nothing_written(
        prompts.states, tuple(len(part) for part in prompts.is_private), constraint=constraint, params=params
    )
    place = begun.place._replace(cache=prompts.cache)
    contexts = len(private_prompts)
    loop = _decode_in_stretches(run, begun._replace(place=place), contexts, params, watch)
    end = int(loop.written)
    spending = None
    if loop.charged is not None:
        private = slice(public_count, public_count + contexts)
        receipts = (np.asarray(part)[:end, private] for part in (loop.charged, loop.voted))
        spending = individual.Spending(*receipts)
    return TokenStream(
        np.asarray(loop.tokens)[:end],
        np.asarray(loop.is_private)[:end],
        None if loop.losses is None else np.asarray(loop.losses)[:, :end],
        spending,
        None if loop.is_forced is None else np.asarray(loop.is_forced)[:end],
    )


def _decode_in_stretches(
    run: Callable[[_Loop, jax.Array], _Loop],
    loop: _Loop,
    contexts: int,
    params: MechanismParams,
    watch: Watch,
) -> _Loop:
    """Runs the loop to its end, about a second at a time.

    Where a stretch ends changes no bit: every stretch is the same program, and the whole state is carried.
    """
    # The first token of a new shape waits for the compiler, so its time says nothing about the next ones.
    tokens, until = 0, 1
    pace: float | None = None
    while bool(_is_unfinished(loop, params)):
        watch('Decoding', tokens)
        started = time.monotonic()
        loop = run(loop, jnp.int32(until))
        before, tokens = tokens, int(loop.written)
        if before:
            seconds = time.monotonic() - started
            pace = seconds / (tokens - before)
            speed.note('decoding', contexts * (tokens - before), seconds)
        stretch = 1 if pace is None else max(1, int(_STRETCH_SECONDS / max(pace, 1e-6)))
        until = min(tokens + stretch, params.max_batch_tokens)
    return loop


@functools.partial(jax.jit, static_argnames=('public_count', 'decoder', 'params'), donate_argnames=('begun',))
def _run_loop(
    weights: Any,
    begun: _Loop,
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
    """A stretch of the while loop of METHOD 4 (PP Algorithm 1, lines 6 to 21) for one batch.

    The whole carry is returned, so that the new cache can use the buffers of the donated one.

    Args:
        weights: The decoder's.
        begun: The carry before the first token, or what the previous call returned; it is donated.
        until: Number of tokens at which the stretch ends, with the step that reaches it; int32 scalar.
        states: After the prompts, for every micro-batch; public rows first.
        is_private_row: `[m]` bool for every micro-batch.
        constraint: Tokens that may be sampled.
        stop_table: `StopRule.table`.
        threshold_noise: The batch's, as `sparse_vector.limbs`.
        distance_noise: The batch's, in the same.
        words: The batch's.
        public_count: Public rows, which come first; 0 where there are none.
        decoder: The model.
        params: The mechanism.
    """

    output = functools.partial(decoder.logits, weights)

    def sample(loop: _Loop) -> _Chosen:
        """A private token where the noisy distance reaches the noisy threshold, else a public one."""
        now = loop.place.states
        votes, accounts, receipt = mechanism.settle(
            mechanism.tally(
                rows.public_states(now, public_count),
                now,
                is_private_row,
                _mask_of(constraint, loop.place.state),
                params,
                output,
            ),
            loop.accounts,
            params,
        )
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

    def next_step(loop: _Loop) -> _Loop:
        forced, most = constraint.forced(loop.place.state), 1
        if forced is None:
            chosen = sample(loop)
        else:
            most = decoder.shapes.step_tokens
            # Nobody votes on a forced token, and none of its logits is computed.
            chosen = jax.lax.cond(forced < 0, lambda: sample(loop), lambda: _without_vote(loop, forced))
        private_count = loop.private_count + chosen.is_private.astype(jnp.int32)
        step = step_of(
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
        place = advance(
            loop.place,
            step,
            weights=weights,
            first=states,
            constraint=constraint,
            decoder=decoder,
        )
        return _with_step(loop, chosen, step, forced)._replace(private_count=private_count, place=place)

    return jax.lax.while_loop(
        lambda loop: _is_unfinished(loop, params) & (loop.written < until), next_step, begun
    )


def _is_unfinished(loop: _Loop, params: MechanismParams) -> jax.Array:
    return (loop.private_count < params.private_token_cap) & (loop.written < params.max_batch_tokens)


def _mask_of(constraint: Constraint, state: Any) -> jax.Array | candidates.Narrowed:
    """The mask of a step, in the form that votes read."""
    if not constraint.narrows_predictions:
        return constraint.allowed(state)
    return candidates.Narrowed(
        functools.partial(constraint.allowed, state), functools.partial(constraint.allowed_among, state)
    )


@functools.partial(jax.jit, static_argnames=('row_counts', 'params'))
def _nothing_written(
    states: tuple[jax.Array, ...],
    row_counts: tuple[int, ...],
    *,
    constraint: Constraint,
    params: MechanismParams,
) -> _Loop:
    """The carry before the first token, without the cache."""
    place = Place(
        example=jnp.int32(0),
        offset=jnp.int32(0),
        state=constraint.start(),
        stop_state=jnp.asarray(stop_rules.START),
        # The carry is donated, and every example starts from the states that are given.
        states=jax.tree.map(jnp.copy, states),
        cache=(),
    )
    most, receipts = params.max_batch_tokens, None
    if params.is_individual:
        receipts = (most, sum(row_counts))
    return _Loop(
        written=jnp.int32(0),
        private_count=jnp.int32(0),
        place=place,
        tokens=jnp.zeros(most, jnp.int32),
        is_private=jnp.zeros(most, bool),
        is_forced=None if constraint.forced(constraint.start()) is None else jnp.zeros(most, bool),
        losses=jnp.zeros((2, most), jnp.float32) if params.is_ex_post else None,
        accounts=params.strategy.open_accounts(row_counts),
        charged=None if receipts is None else jnp.zeros(receipts, jnp.float32),
        voted=None if receipts is None else jnp.zeros(receipts, bool),
    )


def _without_vote(loop: _Loop, token: jax.Array) -> _Chosen:
    """A forced token: no vote, no test, no price."""

    def nothing(array: jax.Array | None, axis: int) -> jax.Array | None:
        return None if array is None else jnp.zeros(array.shape[axis], array.dtype)

    return _Chosen(
        token=token,
        is_private=jnp.bool_(False),
        losses=nothing(loop.losses, 0),
        accounts=loop.accounts,
        charged=nothing(loop.charged, 1),
        voted=nothing(loop.voted, 1),
    )


def _with_step(loop: _Loop, chosen: _Chosen, step: Step, forced: jax.Array | None) -> _Loop:
    """The carry with a step's tokens and what is recorded with them; place and count are not moved."""

    def with_row(array: jax.Array | None, row: jax.Array | None) -> jax.Array | None:
        return array if array is None or row is None else array.at[loop.written].set(row)

    most, losses, is_forced = len(step.tokens), loop.losses, loop.is_forced
    # Slots past the step's length are overwritten by the next step, or cut off at the end of the batch.
    slots = loop.written + jnp.arange(most)
    if forced is not None and is_forced is not None:
        is_forced = is_forced.at[slots].set((forced >= 0) | (jnp.arange(most) > 0), mode='drop')
    if losses is not None and chosen.losses is not None:
        losses = losses.at[:, loop.written].set(chosen.losses)
    return loop._replace(
        written=loop.written + step.length,
        tokens=loop.tokens.at[slots].set(step.tokens, mode='drop'),
        is_private=loop.is_private.at[loop.written].set(chosen.is_private),
        is_forced=is_forced,
        losses=losses,
        accounts=chosen.accounts,
        charged=with_row(loop.charged, chosen.charged),
        voted=with_row(loop.voted, chosen.voted),
    )
