"""A walk along a batch's token stream, for audits: the caller says which token follows."""

import functools
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import stop_rule as stop_rules
from models.constraints.constraint import Constraint, look
from models.decoders import decoder as decoder_lib
from models.generate import rows, step
from models.generate.rows import PublicRows
from models.generate.step import Place
from models.privacy import mechanism
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule


class Position(NamedTuple):
    """What the loop sees before it chooses a token, copied to the host.

    Attributes:
        logits: `[contexts, V]` float32, raw, of the private prompts in their order.
        public_logits: `[V]` float32, of the public prompt or the reference; zeros without public rows.
        example: Number of the current example, from 0.
        place: Number of tokens of the current example before this one.
        mask: `[V]` bool, the tokens that the constraint allows here.
        forced: The only token that may come here, on which nobody votes; None where there is a choice.
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
    """The steps of `loop.decode_stream` one by one, for audits: the caller says which token follows.

    Yields the position of every token and is sent that token, until the caller closes it. The mechanism
    is not applied: these are the logits of real prompts, and they stay with the curator.

    Args:
        decoder: The model.
        public: As of `loop.decode_stream`.
        private_prompts: As of `loop.decode_stream`.
        params: The length cap of an example is read.
        constraint: Its masks are shown; the caller may send other tokens.
        stop_rule: What ends an example.
    """
    step.check_fits(constraint, stop_rule, decoder)
    prompts = rows.prefill_private(decoder, private_prompts)
    stop_table = jnp.asarray(stop_rule.table)
    states = prompts.states if public is None else (public.states, *prompts.states)
    # Each step overwrites the cache that it is given; that of the public rows serves other batches too.
    kept = () if public is None else jax.tree.map(jnp.copy, public.cache)
    place = Place(
        example=jnp.int32(0),
        offset=jnp.int32(0),
        state=constraint.start(),
        stop_state=jnp.asarray(stop_rules.START),
        states=states,
        cache=(*kept, *prompts.cache),
    )
    while True:
        seen = [np.asarray(part, np.float32) for part in _all_logits(decoder, decoder.weights, place.states)]
        reference = np.zeros(decoder.vocab_size, np.float32)
        if public is not None:
            reference = np.asarray(mechanism.reference_logits(jnp.asarray(seen.pop(0)[: public.prompts])))
        mask, forced = look(constraint, place.state)
        token = yield Position(
            logits=np.concatenate(seen)[: len(private_prompts)],
            public_logits=reference,
            example=int(place.example),
            place=int(place.offset),
            mask=np.asarray(mask),
            forced=None if forced is None or int(forced) < 0 else int(forced),
        )
        at, cache = place._replace(cache=()), place.cache
        place = _walk_on(
            decoder.weights, cache, at, jnp.int32(token), states, constraint, stop_table,
            decoder=decoder, params=params,
        )  # fmt: skip


@functools.partial(jax.jit, static_argnames='decoder')
def _all_logits(
    decoder: decoder_lib.Decoder, weights: Any, states: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """`[m, V]` for every micro-batch."""
    return tuple(decoder.logits(weights, part) for part in states)


@functools.partial(jax.jit, static_argnames=('decoder', 'params'), donate_argnames=('cache',))
def _walk_on(
    weights: Any,
    cache: Any,
    place: Place,
    token: jax.Array,
    first: tuple[jax.Array, ...],
    constraint: Constraint,
    stop_table: jax.Array,
    *,
    decoder: decoder_lib.Decoder,
    params: MechanismParams,
) -> Place:
    """`step.advance` by one token; the cache is donated."""
    place = place._replace(cache=cache)
    taken = step.step_of(
        place, token, most=1, room=jnp.int32(1), constraint=constraint, stop_table=stop_table, params=params
    )
    return step.advance(place, taken, weights=weights, first=first, constraint=constraint, decoder=decoder)
