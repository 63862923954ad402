"""The facts of private prediction for a report: of its aggregate, of its test, and of both together.

PP = Amin et al. 2024.
"""

import dataclasses
import typing
from collections.abc import Mapping

from models.privacy import accounting, sparse_vector
from models.privacy.aggregates import AGGREGATES
from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import Facts, MethodFacts, Reproduction, Setting
from models.privacy.numbers import format_exact
from models.privacy.params import Change, MechanismParams, Unit


def facts(
    params: MechanismParams,
    reference: tuple[Facts, ...] = (),
    adapter: Facts | None = None,
    releases: tuple[EarlierRelease, ...] = (),
) -> MethodFacts:
    """The facts of a run with these settings, from public values alone.

    Args:
        params: The mechanism.
        reference: The facts of the reference (`models.privacy.report.reference`); empty if the public
            prompt is the only public row.
        adapter: The facts of the adapter that the model decodes with (`models.privacy.report.adapter`);
            None if it has none.
        releases: The releases that went in.
    """
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
        accounting=_accounting(params),
        settings=dataclasses.asdict(params),
        contexts=_contexts(params),
        parts=(*parts, *reference, *(() if adapter is None else (adapter,))),
        decoding=Facts(
            assumptions_enforced=(
                "A context's logits do not depend on the other contexts of its batch.",
                f'A batch stops at {params.private_token_cap:,} private tokens, in the middle of an example '
                'if need be.',
            )
        ),
        rho_per_private_token=(
            None if params.is_ex_post or params.is_individual else accounting.rho_per_private_token(params)
        ),
        reproduction=_reproduction(params, parts),
        has_adapter=adapter is not None,
        releases=releases,
    )


def facts_of(mechanism: Mapping[str, Setting]) -> MethodFacts:
    """`facts` for the settings that a report holds.

    Args:
        mechanism: Every field of `MechanismParams`, by name.

    Raises:
        ValueError: This installation knows no mechanism with these settings.
    """
    return facts(MechanismParams(**typing.cast(dict[str, typing.Any], dict(mechanism))))


def unit_of(mechanism: Mapping[str, Setting]) -> Unit:
    """Whose presence a run with these settings hides."""
    return 'user' if mechanism.get('unit') == 'user' else 'example'


def unit_nouns(unit: Setting) -> tuple[str, str]:
    """The unit of privacy in the singular and in the plural."""
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


def expects_price_per_token(mechanism: Mapping[str, Setting]) -> bool:
    """Whether a report of these settings states what one more private token per batch costs.

    It does for private prediction with a price in advance. With individual accounting it does not, because
    each context pays its own price.
    """
    return is_of_prediction(mechanism) and mechanism.get('accounting') != 'individual'


def _accounting(params: MechanismParams) -> str:
    conversion = (
        'becomes (ε, δ) by the bound of Canonne, Kamath and Steinke (2020, Corollary 13) at its best α'
    )
    if params.is_individual:
        budget, omega = format_exact(params.context_budget or 0.0), format_exact(params.omega or 0.0)
        replaces = params.change is Change.REPLACE
        of_batch = '4B, since one context may leave and another come' if replaces else 'B'
        return (
            'Truncated zero-concentrated differential privacy (truncated zCDP), with individual accounting: '
            'for each token a context pays an upper bound on what it gives itself, and it votes no more than '
            f'its own budget of B = {budget} covers. The whole stream of a batch, however long, costs '
            f'ρ = {of_batch}. That is a bound at Rényi orders up to ω = {omega}, and at none above. Batches '
            'compose in parallel since their contexts are disjoint, stages by adding their ρ. The total '
            f'{conversion} up to ω.'
        )
    return (
        'Zero-concentrated differential privacy (zCDP): the tokens of a batch compose sequentially, batches '
        f'in parallel since their contexts are disjoint, stages by adding their ρ. The total {conversion}. '
        f'The cost is stated for the cap of {params.private_token_cap:,} private tokens per batch, however '
        'many a batch used.'
    )


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
            (
                'It hides one user, not a group: for m users together ρ grows by m²'
                if is_user
                else 'It hides one record: for a person with m records, ρ grows by m²'
            )
            # BDRS, group privacy.
            + (', and ω falls to ω/m.' if params.is_individual else '.'),
        ),
    )


def _reproduction(params: MechanismParams, parts: tuple[Facts, ...]) -> Reproduction | None:
    """r times the cost of one private token, which is the sum over the parts (PP Theorem 1).

    With individual accounting one part has the cost of the whole stream (METHOD 4d).
    """
    costs = [part.reproduction for part in parts if part.reproduction is not None]
    if len(costs) < len(parts):
        return None
    change = f'change = {params.change.value}  # 1: a context comes or goes; 2: its content may be replaced'
    if params.is_individual:
        [whole] = costs
        return dataclasses.replace(whole, settings=(*whole.settings, change))
    aggregate, *others = costs
    return Reproduction(
        settings=(
            f's = {params.batch_size}  # expected batch size',
            *aggregate.settings,
            f'r = {params.private_token_cap}  # cap on the private tokens of one batch',
            change,
        ),
        steps=(
            *(line for part in others for line in part.settings),
            *(line for part in costs for line in part.steps),
            f'rho_per_private_token = {" + ".join(part.cost for part in costs)}',
        ),
        cost='r * rho_per_private_token',
    )
