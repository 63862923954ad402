"""The price of private prediction in zCDP (PP Theorem 1).

The private tokens of a batch compose sequentially. Batches hold disjoint contexts, so they compose in
parallel (PP Lemma 2), and their number does not appear below.
"""

from models.privacy import events, sparse_vector
from models.privacy.aggregates import individual
from models.privacy.params import MechanismParams


def aggregate_rho(params: MechanismParams) -> float:
    """rho of sampling one private token, from the event of the run's aggregate.

    Raises:
        ValueError: The aggregate has no price in advance, or its price is not in zCDP.
    """
    event = params.strategy.event(params)
    if not isinstance(event, events.ZCDpEvent):
        raise ValueError(
            f'Expected an aggregate with a price in zCDP, got aggregate={params.aggregate!r}, '
            f'whose event is {event!r}. Ask params.strategy.event, or models/privacy/ex_post.py.'
        )
    return event.rho


def sparse_vector_rho(params: MechanismParams) -> float:
    """rho of one run of the sparse-vector test (PP Lemma 5); 0 without the test."""
    event = sparse_vector.event(params)
    return 0.0 if event is None else event.rho


def rho_per_private_token(params: MechanismParams) -> float:
    """rho of one private token with the sparse-vector run that led to it (PP Theorem 1)."""
    return aggregate_rho(params) + sparse_vector_rho(params)


def generation_rho(params: MechanismParams) -> float:
    """rho of all decoding: r times the cost of one private token (PP Theorem 1).

    It is stated for the cap r, however many private tokens a run uses. With individual accounting it is
    what one unit may spend, B or 4B, at orders up to omega (METHOD 4d).
    """
    event = generation_event(params)
    if isinstance(event, events.TruncatedZCDpEvent):
        return event.rho
    return params.private_token_cap * rho_per_private_token(params)


def generation_event(
    params: MechanismParams,
) -> events.SelfComposedDpEvent | events.TruncatedZCDpEvent:
    """All decoding as an event: r private tokens, each in zCDP (PP Theorem 1).

    With individual accounting one event of truncated zCDP for the whole stream (METHOD 4d).
    """
    if params.is_individual:
        return individual.accounting_of(params)
    token = events.ZCDpEvent(rho=rho_per_private_token(params))
    return events.SelfComposedDpEvent(event=token, count=params.private_token_cap)
