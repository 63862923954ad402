"""What private prediction tells a report: its aggregate, its sparse-vector test, and how batches share them.

Sources: PP = Amin et al. 2024; CL = the paper on clusters and the median.
"""

import dataclasses
import typing
from collections.abc import Mapping

from models.privacy import accounting
from models.privacy.facts import (
    Facts,
    MethodFacts,
    Reproduction,
    RhoStage,
    Sensitivity,
    Setting,
    StatementWords,
)
from models.privacy.numbers import format_exact
from models.privacy.params import Change, MechanismParams


def facts(params: MechanismParams) -> MethodFacts:
    """What a run with these settings tells, from public values alone."""
    aggregate = aggregate_facts(params)
    parts = (aggregate, sparse_vector_facts(params)) if params.uses_sparse_vector else (aggregate,)
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


def has_price_in_advance(mechanism: Mapping[str, Setting]) -> bool:
    """Whether a run with these settings has a price before it starts.

    Args:
        mechanism: Every field of `MechanismParams`, by name.
    """
    return mechanism.get('aggregate') != 'median'


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


def aggregate_facts(params: MechanismParams) -> Facts:
    """What the run's aggregate tells."""
    return {'mean': mean, 'difference': difference, 'median': median}[params.aggregate](params)


def _replaced(params: MechanismParams) -> str:
    return '2' if params.change is Change.REPLACE else ''


def bounded(
    params: MechanismParams,
    *,
    explanation: str,
    quantity: str,
    enforced: tuple[str, ...],
    sources: tuple[str, ...] = (),
) -> Facts:
    """What an aggregate tells whose components one unit moves by c/s at most (PP Lemma 4)."""
    r, s, two = params.max_private_tokens, params.batch_size, _replaced(params)
    c, tau = format_exact(params.clip_bound), format_exact(params.temperature)
    return Facts(
        stages=(
            RhoStage(
                name='Private tokens',
                rho=r * accounting.aggregate_rho(params),
                explanation=explanation,
                formula=f'r · ½·({two}c/(s·τ))²',
                numbers=f'{r} · ½·({two + "·" if two else ""}{c}/({s}·{tau}))²',
            ),
        ),
        sensitivities=(
            Sensitivity(quantity=quantity, value=params.aggregate_sensitivity, formula=f'{two}c/s'),
        ),
        on_replacement='both sensitivities of decoding double',
        assumptions_enforced=enforced,
        sources=sources,
        reproduction=Reproduction(
            settings=(
                f'c = {params.clip_bound!r}  # clip bound',
                f'tau = {params.temperature!r}  # temperature',
            ),
            cost='0.5 * (change * c / (s * tau)) ** 2',
        ),
    )


def mean(params: MechanismParams) -> Facts:
    """What the mean of clipped logits tells (PP equation 1)."""
    return bounded(
        params,
        explanation=(
            'Sampling at most r private tokens per batch from the clipped average of its private logits.'
        ),
        quantity='Any component of the average private logits, in nats',
        enforced=(
            'Logits are clipped before they are averaged, and sums are divided by the public expected batch '
            'size, whatever a batch holds.',
        ),
    )


def difference(params: MechanismParams) -> Facts:
    """What the mean of clipped differences from the public logits tells (METHOD 4b)."""
    vocabulary = (
        'tokens whose public logit is at least the K-th largest minus 2c/s (Top-k+)'
        if params.public_top_k is not None
        else 'tokens within a fixed range below the most likely public one'
    )
    return bounded(
        params,
        explanation=(
            'Sampling at most r private tokens per batch from the public prediction plus the average of the '
            "private prompts' clipped differences from it."
        ),
        quantity='Any component of the aggregate of clipped differences, in nats',
        enforced=(
            "Each private prompt's log-probabilities are compared with the public prompt's. The differences "
            'are clipped before they are averaged, and sums are divided by the public expected batch size, '
            'whatever a batch holds.',
            f'Text is made of {vocabulary}, a function of public values alone.',
        ),
        sources=('InvisibleInk, arXiv 2507.02974 (clipped differences, Top-k+).',),
    )


def median(params: MechanismParams) -> Facts:
    """What the component-wise median tells, whose loss is known afterwards only (CL 4.2; METHOD 5)."""
    places = 'two places' if params.change is Change.REPLACE else 'one place'
    return Facts(
        statement='ex-post',
        statement_words=StatementWords(
            guarantee=(
                'The text of this corpus has no (ε, δ) guarantee. Its privacy loss is data-dependent and '
                'ex-post: an ε that depends on the records and on the text that came out, and that bounds '
                'how much more or less likely this very text would have been with one {one} added or '
                'removed. It became known after the run and is not published: it is computed from the '
                'private records. The curator holds it.'
            ),
            accounting=(
                'Data-dependent ex-post accounting (Clustering improves differentially private inference, '
                'Definition 2 and Theorem 2): the loss of a token follows from the medians of its batch and '
                "from how far one context could have moved them. The losses of a batch's tokens add up, "
                "and the run's loss is that of its largest batch, since batches hold disjoint contexts. The "
                'curator computes it after the run; nothing of it is in this report. Noisy counts, where '
                'there are any, are priced in advance in zero-concentrated differential privacy (zCDP).'
            ),
            limits=(
                'It promises nothing in advance: a second run with the same settings, or the same run on '
                'other records, may lose more.',
                'It is about one {one}, and says nothing of several together.',
            ),
        ),
        stages=(
            RhoStage(
                name='Private tokens',
                rho=None,
                explanation=(
                    'Sampling private tokens from the component-wise medians of the clipped private logits '
                    'of a batch. The cost depends on the records and the text; the curator holds it.'
                ),
                formula='ε = max(−Σ log α, Σ log β)',
                numbers='',
            ),
        ),
        why_no_sensitivity=(
            'How far one unit moves a median depends on the other records. That is why the loss is known '
            'afterwards only.'
        ),
        on_replacement='losses are computed for that',
        assumptions_enforced=(
            'Logits are clipped before their medians are taken; a batch too small to have neighbours on both '
            'sides of its median counts with the whole clip range, and an empty one predicts what the public '
            'prompt does.',
            f'The range of the medians that one change can cause ({places} from the middle) is computed '
            'exactly, for every private token.',
        ),
        assumptions_of_curator=(
            'The data-dependent loss, of the run, of a batch or of a token, is told to nobody who may not '
            'see the records.',
        ),
        symbols=('log α and log β the most that one context can have lowered or raised the odds of a token',),
        sources=('CL: Clustering improves differentially private inference, sections 4 and 5.',),
    )


def sparse_vector_facts(params: MechanismParams) -> Facts:
    """What the sparse-vector test tells (PP Lemma 5).

    Raises:
        ValueError: The settings leave the test out.
    """
    if params.threshold_noise_scale is None:
        raise ValueError('Expected a threshold_noise_scale, got none. Leave the facts of the test out.')
    r, s, sigma = params.max_private_tokens, params.batch_size, format_exact(params.threshold_noise_scale)
    two = _replaced(params)
    priced = not params.is_ex_post
    per_run = 4 if two else 2
    return Facts(
        stages=(
            RhoStage(
                name='Sparse-vector test',
                rho=r * accounting.sparse_vector_rho(params) if priced else None,
                explanation=(
                    'Deciding before each token whether a public one will do; paid once per private token.'
                    if priced
                    else 'Deciding before each token whether a public one will do. Each run of the test, one '
                    "per private token and one left open at a batch's end, adds a fixed ε to the loss that "
                    'the curator holds.'
                ),
                formula=f'r · 2·({two or "1"}/(s·σ))²' if priced else f'ε = {per_run}/(s·σ) per run',
                numbers=(
                    f'{r} · 2·({two or "1"}/({s}·{sigma}))²' if priced else f'{per_run}/({s}·{sigma}) per run'
                ),
            ),
        ),
        sensitivities=(
            Sensitivity(
                quantity='Distance between the average private and the public prediction (L1)',
                value=params.distance_sensitivity,
                formula=f'{two or "1"}/s',
            ),
        ),
        symbols=('σ threshold noise scale',),
        reproduction=Reproduction(
            settings=(f'sigma = {params.threshold_noise_scale!r}  # threshold noise scale',),
            cost='2 * (change / (s * sigma)) ** 2',
        )
        if priced
        else None,
    )
