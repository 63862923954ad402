"""What private prediction tells a report: the facts of its aggregate and of its test, and of both together.

PP = Amin et al. 2024.
"""

import dataclasses
import typing
from collections.abc import Mapping

from models.privacy import accounting, sparse_vector
from models.privacy.aggregates import AGGREGATES
from models.privacy.facts import Facts, MethodFacts, Reproduction, Setting
from models.privacy.params import Change, MechanismParams


def facts(params: MechanismParams) -> MethodFacts:
    """What a run with these settings tells, from public values alone."""
    aggregate = params.strategy.facts(params)
    parts = (aggregate, sparse_vector.facts(params)) if params.uses_sparse_vector else (aggregate,)
    one, many = unit_nouns(params.unit)
    return MethodFacts(
        unit_nouns=(one, many),
        unit_of_privacy=_unit_of_privacy(params, aggregate.on_replacement),
        mechanism_output=(
            'All tokens of all batches, in order, with where each example ends and how many of its tokens '
            'are private and public'
        ),
        accounting=(
            'Zero-concentrated differential privacy (zCDP): the tokens of a batch compose sequentially, '
            'batches in parallel since their contexts are disjoint, stages by adding their ρ. The total '
            'becomes (ε, δ) by the bound of Canonne, Kamath and Steinke (2020, Corollary 13) at its best '
            f'α. The cost is stated for the cap of {params.max_private_tokens:,} private tokens per batch, '
            'however many a batch used.'
        ),
        settings=dataclasses.asdict(params),
        contexts=_contexts(params),
        parts=parts,
        decoding=Facts(
            assumptions_enforced=(
                "A context's logits do not depend on the other contexts of its batch.",
                f'A batch stops at {params.max_private_tokens:,} private tokens, in the middle of an example '
                'if need be.',
            )
        ),
        rho_per_private_token=(None if params.is_ex_post else accounting.rho_per_private_token(params)),
        reproduction=_reproduction(params, parts),
    )


def facts_of(mechanism: Mapping[str, Setting]) -> MethodFacts:
    """`facts` of the settings that a report holds.

    Args:
        mechanism: Every field of `MechanismParams`, by name.

    Raises:
        ValueError: They are not those of a mechanism that this installation knows.
    """
    return facts(MechanismParams(**typing.cast(dict[str, typing.Any], dict(mechanism))))


def unit_nouns(unit: Setting) -> tuple[str, str]:
    """The unit of privacy as one and as many."""
    return ('user', 'users') if unit == 'user' else ('record', 'records')


def is_of_prediction(mechanism: Mapping[str, Setting]) -> bool:
    """Whether settings by name are those of private prediction, and not of another method."""
    return 'aggregate' in mechanism


def has_price_in_advance(mechanism: Mapping[str, Setting]) -> bool:
    """Whether a run with these settings has a price before it starts.

    Args:
        mechanism: Every field of `MechanismParams`, by name.
    """
    aggregate = AGGREGATES.get(str(mechanism.get('aggregate')))
    return aggregate is None or aggregate.has_price_in_advance


def _unit_of_privacy(params: MechanismParams, on_replacement: str) -> str:
    limit = params.examples_per_context
    if params.unit == 'user':
        at_most = 'one record' if limit == 1 else f'at most {limit} records'
        return (
            f'One user: everything that the input holds under one unit id. A user contributes {at_most}, '
            'of one label, as one context, chosen by a keyed hash of the records.'
        )
    if params.change is Change.REPLACE:
        return (
            f'One record. Up to {limit} records without unit ids share a context; adding one may displace '
            f'another, so a change may replace the content of a context, and {on_replacement}.'
        )
    return 'One record: one row of the input, which is one context of its own.'


def _contexts(params: MechanismParams) -> Facts:
    is_user = params.unit == 'user'
    of_what = 'unit id and records' if is_user else 'record'
    return Facts(
        assumptions_enforced=(
            f'Batches are disjoint: which batch a {unit_nouns(params.unit)[0]} joins is a keyed hash of its '
            f'own {of_what}, never of its position or of the others (PP Assumption 1).',
            'A user beyond the contribution bound contributes the records with the smallest keyed hashes.'
            if is_user
            else 'A record counts once, in one context.',
        ),
        assumptions_of_curator=(
            "One person has one unit id, and nobody else's records carry it."
            if is_user
            else 'Hiding one record is enough. A person with several records is protected less (see the '
            'limits).',
        ),
        limits=(
            'It hides one user, not a group: for m users together ρ grows by m².'
            if is_user
            else 'It hides one record: for a person with m records, ρ grows by m².',
        ),
    )


def _reproduction(params: MechanismParams, parts: tuple[Facts, ...]) -> Reproduction | None:
    """r times the cost of one private token, the sum over the parts (PP Theorem 1)."""
    costs = [part.reproduction for part in parts if part.reproduction is not None]
    if len(costs) < len(parts):
        return None
    aggregate, *others = costs
    return Reproduction(
        settings=(
            f's = {params.batch_size}  # expected batch size',
            *aggregate.settings,
            f'r = {params.max_private_tokens}  # cap on the private tokens of one batch',
            f'change = {params.change.value}  # 1: a context comes or goes; 2: its content may be replaced',
        ),
        steps=(
            *(line for part in others for line in part.settings),
            *(line for part in costs for line in part.steps),
            f'rho_per_private_token = {" + ".join(part.cost for part in costs)}',
        ),
        cost='r * rho_per_private_token',
    )
