"""One step of a token stream: the token that was chosen, the forced ones behind it, and where they lead.

Every decoding of a batch has the same steps: they follow from public settings and released tokens alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models import stop_rule as stop_rules
from models.constraints import Constraint
from models.decoders import decoder as decoder_lib
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule


class Place(NamedTuple):
    """A position in a token stream: what the next token is chosen from."""

    example: jax.Array  # int32 scalar, number of the current example
    offset: jax.Array  # int32 scalar, tokens of the current example before the next one
    state: Any  # of the constraint
    stop_state: jax.Array  # uint8 scalar, of the stop rule
    states: tuple[jax.Array, ...]  # of every row, from which the next token's logits are computed
    cache: Any


class Step(NamedTuple):
    """A chosen token and the forced ones behind it, which go through the model together."""

    tokens: jax.Array  # [R] int32
    length: jax.Array  # int32 scalar, 1 to R tokens; the slots behind them mean nothing
    state: Any  # of the constraint, after the last of them
    stop_state: jax.Array  # uint8 scalar, after the last of them
    ended: jax.Array  # bool scalar, whether the last of them ended the example


def step_of(
    place: Place,
    token: jax.Array,
    *,
    most: int,
    room: jax.Array,
    constraint: Constraint,
    stop_table: jax.Array,
    params: MechanismParams,
) -> Step:
    """A token with the forced ones behind it, up to the end of the example or R tokens.

    A function of public settings and released tokens alone, so every decoding of a batch has the same
    steps.

    Args:
        place: The place at which the token was chosen.
        token: int32 scalar.
        most: R.
        room: Tokens that the caps leave, including the first one; int32 scalar, at least 1.
        constraint: Tokens that may be sampled.
        stop_table: `StopRule.table`, which says where an example ends.
        params: The length cap of an example is read.
    """

    def with_token(step: Step, token: jax.Array) -> Step:
        stop_state, length = stop_table[step.stop_state, token], step.length + 1
        is_stop = stop_state == stop_table.shape[0]
        return Step(
            tokens=step.tokens.at[step.length].set(token),
            length=length,
            state=constraint.advance(step.state, token),
            stop_state=stop_state,
            ended=is_stop | (place.offset + length >= params.max_example_tokens),
        )

    def forced(step: Step) -> jax.Array:
        forced_token = constraint.forced(step.state)
        assert forced_token is not None, 'only then is there more than one token'
        return forced_token

    def goes_on(step: Step) -> jax.Array:
        return ~step.ended & (step.length < jnp.minimum(most, room)) & (forced(step) >= 0)

    nothing = Step(
        jnp.zeros(most, jnp.int32), jnp.int32(0), place.state, place.stop_state, ended=jnp.bool_(False)
    )
    step = with_token(nothing, token)
    if most == 1:
        return step
    return jax.lax.while_loop(goes_on, lambda step: with_token(step, forced(step)), step)


def advance(
    place: Place,
    step: Step,
    *,
    weights: Any,
    first: tuple[jax.Array, ...],
    constraint: Constraint,
    decoder: decoder_lib.Decoder,
) -> Place:
    """The place after a step: further in the example, or back at the end of the prompts.

    Args:
        place: The place at which the first token of the step was chosen.
        step: The step, from `step_of`.
        weights: The decoder's.
        first: The states after the prompts.
        constraint: Starts again with every example; examples may have different start states.
        decoder: The model.
    """
    # After an example's last token the model's result is thrown away, so one token is enough. A branch
    # around it would make the compiler copy the cache at every token.
    count = jnp.where(step.ended, 1, step.length)
    states, cache = decoder.append(weights, place.cache, step.tokens, count, place.offset)
    example = place.example + step.ended.astype(jnp.int32)
    start = (jnp.int32(0), constraint.start(example), stop_rules.START, first)
    begun = (place.offset + step.length, step.state, step.stop_state, states)
    offset, state, stop_state, states = jax.tree.map(
        lambda anew, further: jnp.where(step.ended, anew, further), start, begun
    )
    return Place(
        example=example,
        offset=offset,
        state=state,
        stop_state=stop_state,
        states=states,
        cache=cache,
    )


def check_fits(constraint: Constraint, stop_rule: StopRule, decoder: decoder_lib.Decoder) -> None:
    """Refuses a constraint or a stop rule for another vocabulary than the model's.

    Raises:
        ValueError: The number of tokens differs.
    """
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
