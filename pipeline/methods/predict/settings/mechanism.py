"""The mechanism that settings of votes give: what epsilon pays for is solved here."""

import dataclasses
from typing import Any

from models.privacy import accounting
from models.privacy.params import MechanismParams
from pipeline.methods.predict.settings.votes import Votes
from pipeline.settings.budget import Budget

DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN = 8
# Of tokens that a context is paid for that adds the whole clip bound to each: others vote for longer.
DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN = 16
# A large budget is better spent on a larger clip bound than on ever longer batches.
MOST_DEFAULT_BATCH_TOKENS = 1024


def mechanism(
    own: Votes, budget: Budget, *, delta: float, max_example_tokens: int, other_rho: float
) -> MechanismParams:
    """The mechanism, with r, or B and ω, solved for where epsilon was given.

    Args:
        own: How contexts vote.
        budget: The guarantee.
        delta: At which epsilon is stated.
        max_example_tokens: Cap on the tokens of an example.
        other_rho: rho of all that the run releases beside its text.

    Raises:
        ValueError: A setting out of range, or a budget that buys no private token.
    """
    unsolved_params = unsolved(own, budget, max_example_tokens)
    if own.is_individual:
        return _individual(own, budget, unsolved_params, delta, other_rho)
    cap = own.max_private_tokens
    if cap is None:
        assert budget.epsilon is not None  # `check`
        try:
            cap = accounting.solve_max_private_tokens(
                unsolved_params,
                epsilon=budget.epsilon,
                delta=delta,
                other_rho=other_rho,
            )
        except ValueError as error:
            raise ValueError(
                f'{error}{_bought_by_difference(own, budget, delta, max_example_tokens, other_rho)}'
            ) from None
        if own.max_batch_tokens is not None:
            # No batch can have more: the rest is not paid for.
            cap = min(cap, own.max_batch_tokens)
    per_private_token = 1 if own.threshold is None else DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN
    return dataclasses.replace(
        unsolved_params,
        max_private_tokens=cap,
        max_batch_tokens=own.max_batch_tokens or cap * per_private_token,
    )


def unsolved(own: Votes, budget: Budget, max_example_tokens: int) -> MechanismParams:
    """The mechanism as far as it is given: of what epsilon is solved for it has any value.

    Raises:
        ValueError: A setting out of range.
    """
    if own.is_individual and own.resolved_public_top_k is None:
        raise ValueError(
            'Expected public_top_k >= 1 with individual accounting, got '
            f'public_top_k={own.public_top_k!r}, the whole vocabulary. Give the tokens that may be '
            'voted on, such as --public-top-k 1024, or give --accounting worst-case.'
        )
    of_accounting: dict[str, Any] = {'max_private_tokens': _or(own.max_private_tokens, 1)}
    if own.is_individual:
        of_accounting = {
            'accounting': 'individual',
            'shift_bound': own.resolved_shift_bound,
            'context_budget': 1.0,
            'omega': _or(own.omega, 1.5),
        }
    return MechanismParams(
        batch_size=own.batch_size,
        clip_bound=own.resolved_clip_bound,
        temperature=own.resolved_temperature,
        threshold=own.threshold,
        threshold_noise_scale=own.threshold_noise_scale,
        public_temperature=own.public_temperature,
        public_top_k=own.resolved_public_top_k,
        max_example_tokens=max_example_tokens,
        unit=budget.unit,
        examples_per_context=budget.examples_per_context,
        aggregate=own.aggregate,
        max_batch_tokens=_or(own.max_batch_tokens, 1),
        **of_accounting,
    )


def _or[T](given: T | None, otherwise: T) -> T:
    return otherwise if given is None else given


def _bought_by_difference(
    own: Votes, budget: Budget, delta: float, max_example_tokens: int, other_rho: float
) -> str:
    """What the same epsilon pays for with the default aggregate, in a sentence; nothing where none."""
    if own.strategy.takes_reference:
        return ''
    names = (
        'accounting',
        'clip_bound',
        'temperature',
        'threshold',
        'threshold_noise_scale',
        'public_top_k',
    )
    unset: dict[str, Any] = dict.fromkeys(names)
    try:
        other = mechanism(
            dataclasses.replace(own, aggregate='difference', **unset),
            budget,
            delta=delta,
            max_example_tokens=max_example_tokens,
            other_rho=other_rho,
        )
    except ValueError:
        return ''
    assert other.context_budget is not None
    tokens = accounting.worst_case_tokens(other, other.context_budget)
    return f' Or give --aggregate difference: with its own bounds this epsilon pays for {tokens:,} tokens.'


def _individual(
    own: Votes, budget: Budget, unsolved: MechanismParams, delta: float, other_rho: float
) -> MechanismParams:
    """The mechanism with individual accounting: B and ω as given, or solved for."""
    others: dict[str, float] = {'delta': delta, 'other_rho': other_rho}
    if own.context_budget is None:
        assert budget.epsilon is not None  # `check`
        context_budget, omega = accounting.solve_context_budget(
            unsolved,
            epsilon=budget.epsilon,
            omega=own.omega,
            # A ledger keeps its budget at one order, which a run that takes all of it has to reach.
            to_best=budget.dataset is not None,
            **others,
        )
    else:
        context_budget = own.context_budget
        omega = own.omega or accounting.omega_of_budget(unsolved, context_budget, **others)
    if budget.epsilon is not None and own.max_batch_tokens is not None:
        most = accounting.worst_case_budget(unsolved, own.max_batch_tokens)
        if most < context_budget:
            # No context can spend more: the rest is not paid for.
            context_budget = most
            omega = own.omega or accounting.omega_of_budget(unsolved, context_budget, **others)
    tokens = accounting.worst_case_tokens(unsolved, context_budget)
    if tokens < 1:
        raise ValueError(
            'Expected a context_budget that pays for one token of a context that adds the whole clip '
            f'bound, got context_budget={context_budget!r}, price of that token='
            f'{accounting.worst_case_price(unsolved):.6g}. Raise --context-budget, '
            '--batch-size or --temperature, or lower --clip-bound.'
        )
    return dataclasses.replace(
        unsolved,
        context_budget=context_budget,
        omega=omega,
        max_batch_tokens=own.max_batch_tokens
        or min(MOST_DEFAULT_BATCH_TOKENS, tokens * DEFAULT_BATCH_TOKENS_PER_WORST_CASE_TOKEN),
    )
