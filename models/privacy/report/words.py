"""The sentences of a privacy report, from public values alone."""

import math

from models.privacy import accounting
from models.privacy.params import Change, MechanismParams
from models.privacy.report.numbers import format_exact, format_up
from models.privacy.report.released import (
    TOGETHER,
    Clusters,
    CountSource,
    LedgerEntry,
    RhoStage,
    Sensitivity,
    Statement,
)


def guarantee(statement: Statement, epsilon: float | None, delta: float, counts_rho: float, one: str) -> str:
    """The statement in words. `counts_rho`: of the stages that have a price in advance."""
    shown = format_exact(delta)
    if epsilon is not None:
        return (
            f'The corpus and this report are (ε = {format_up(epsilon)}, δ = {shown})-differentially private '
            f'under adding or removing any one {one}: no set of outputs becomes more than '
            f'e^{format_up(epsilon)} times as likely, plus {shown}.'
        )
    if statement == 'none':
        return (
            'RESEARCH ONLY: no guarantee. The cluster centres were fitted on the private records without '
            f'noise, so ε is infinite: nothing bounds what the corpus or this report tells about one {one}.'
        )
    text = (
        'The text of this corpus has no (ε, δ) guarantee. Its privacy loss is data-dependent and ex-post: '
        'an ε that depends on the records and on the text that came out, and that bounds how much more or '
        f'less likely this very text would have been with one {one} added or removed. It became known '
        'after the run and is not published: it is computed from the private records. The curator holds it.'
    )
    if not counts_rho:
        return text
    alone = format_up(accounting.epsilon_from_rho(counts_rho, delta))
    return f'{text} The noisy counts alone are (ε = {alone}, δ = {shown})-differentially private.'


def dp_setting(statement: Statement) -> str:
    """Who is trusted."""
    if statement == 'none':
        return 'None: a comparison by a curator who may see the records, and whose output stays there.'
    what = 'guarantee' if statement == 'differential privacy' else 'statement'
    return (
        'Central differential privacy with a trusted curator: the curator holds the records, runs the '
        f'job and publishes its output. The {what} is about what readers of that output can learn.'
    )


def data_accesses(statement: Statement, ledger: LedgerEntry | None, one: str) -> tuple[str, ...]:
    """What the guarantee covers and what it does not."""
    if statement == 'none':
        return ('Covered: nothing, since there is no guarantee.',)
    covered = 'Covered: this run, from reading the records to the corpus and this report.'
    tuning = (
        'Not covered: choosing the settings. Looking at the records, or at the output of trial runs on '
        'them, to tune a setting is a further access.'
    )
    if ledger is None:
        add_up = 'costs add up (ρ by ρ)' if statement == 'differential privacy' else 'losses add up'
        others = (
            f'Not covered: other runs on the same records. Their {add_up}, and this run was not charged to a '
            'ledger.'
        )
        return covered, others, tuning
    return (
        covered,
        f'{TOGETHER}{_cumulative_guarantee(ledger, one)}',
        'Not covered: runs on the same records that were not charged to this ledger under this name, and '
        'runs charged after this one, whose reports state the sum anew.',
        tuning,
    )


def _cumulative_guarantee(ledger: LedgerEntry, one: str) -> str:
    """What holds of all runs on the dataset up to this one, in words; numbers rounded upwards."""
    delta = format_exact(ledger.delta)
    given = ledger.epsilon_budget
    if given is None:
        shown = format_up(accounting.epsilon_from_rho(ledger.rho_budget, ledger.delta))
    else:
        shown = format_exact(given)
    budget = f'ρ = {format_up(ledger.rho_budget)}, or ε = {shown} at this δ'
    figures = (
        f'ρ-zCDP for ρ = {format_up(ledger.rho_after)}, hence (ε = {format_up(ledger.epsilon_after)}, '
        f'δ = {delta})-differentially private, under adding or removing any one {one}'
    )
    if ledger.run_number == 1:
        return (
            f"the first run on dataset '{ledger.dataset}' that the ledger has charged is this one, and is "
            f'{figures}. The ledger starts no run past its budget of {budget}.'
        )
    # A sum that depends on outputs bounds nothing by itself; a budget set in advance does (README, 7).
    return (
        f"all {ledger.run_number:,} runs on dataset '{ledger.dataset}' that the ledger has charged up to and "
        f'including this one are together {figures}, for all their outputs taken as one. Where the cost of a '
        'run, or whether to start it, was decided by outputs of earlier ones, the budget bounds all of them '
        f'in place of the sum: {budget}. The ledger starts no run past it.'
    )


def accounting_in_words(params: MechanismParams, statement: Statement) -> str:
    """How costs add up."""
    if statement == 'none':
        return (
            'None: the cost of the centres is infinite, and no sum with it bounds anything. The other '
            'stages are listed with what they would cost by themselves, under given centres.'
        )
    if statement == 'ex-post':
        return (
            'Data-dependent ex-post accounting (Clustering improves differentially private inference, '
            'Definition 2 and Theorem 2): the loss of a token follows from the medians of its batch and from '
            "how far one context could have moved them. The losses of a batch's tokens add up, and the run's "
            'loss is that of its largest batch, since batches hold disjoint contexts. The curator computes '
            'it after the run; nothing of it is in this report. Noisy counts, where there are any, are '
            'priced in advance in zero-concentrated differential privacy (zCDP).'
        )
    return (
        'Zero-concentrated differential privacy (zCDP): the tokens of a batch compose sequentially, '
        'batches in parallel since their contexts are disjoint, stages by adding their ρ. The total '
        'becomes (ε, δ) by the bound of Canonne, Kamath and Steinke (2020, Corollary 13) at its best '
        f'α. The cost is stated for the cap of {params.max_private_tokens:,} private tokens per batch, '
        'however many a batch used.'
    )


def unit_nouns(params: MechanismParams) -> tuple[str, str]:
    """The unit of privacy as one and as many."""
    return ('user', 'users') if params.unit == 'user' else ('record', 'records')


def unit_of_privacy(params: MechanismParams) -> str:
    """Whose presence is hidden."""
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
            'another, so a change may replace the content of a context, and '
            + (
                'losses are computed for that.'
                if params.is_ex_post
                else 'both sensitivities of decoding double.'
            )
        )
    return 'One record: one row of the input, which is one context of its own.'


def delta_relation(delta: float, units: int | None, source: CountSource | None, many: str) -> str:
    """How delta compares with the public number of units."""
    shown = format_exact(delta)
    if units is None:
        return (
            f'δ = {shown} was set by the curator. No number of {many} is public, so none is compared with it.'
        )
    basis = f'n = {units:,} {many} (' + ('declared' if source == 'declared' else 'the noisy count') + ')'
    if units < 2:
        return f'δ = {shown} was set by the curator. {basis} is too few for a comparison.'
    exponent = math.log(delta) / math.log(units)
    relation = f'δ = {shown} is n^{exponent:.2f} for {basis}'
    if delta * units < 1:
        return f'{relation}, below 1/n.'
    return (
        f'{relation}. That is not below 1/n: such a δ alone would allow a mechanism that publishes the '
        f'content of some {many}. Choose a smaller δ.'
    )


def stages(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[RhoStage, ...]:
    """ρ by stage, in the order in which a run pays."""
    stages = []
    if clusters is not None:
        stages += _cluster_stages(clusters)
    if noisy_counts_rho:
        per = 'label' if clusters is None else 'label and cluster'
        stages.append(
            _histogram_stage(
                'Noisy counts',
                noisy_counts_rho,
                f'One count per {per} with discrete Gaussian noise, from which the plan of batches follows.',
            )
        )
    return (*stages, *_decoding_stages(params))


def _cluster_stages(clusters: Clusters) -> list[RhoStage]:
    stages = []
    if clusters.source == 'dp-k-means':
        stages.append(
            RhoStage(
                name='Cluster centres',
                rho=clusters.centers_rho,
                explanation='k-means on the private records with Gaussian noise on its counts and sums.',
                formula='set in advance',
                numbers=f'{clusters.centers_rho:.6g}',
            )
        )
    elif clusters.source == 'k-means':
        stages.append(
            RhoStage(
                name='Cluster centres',
                rho=None,
                explanation='k-means on the private records without noise: no bound.',
                formula='infinite',
                numbers='',
            )
        )
    stages.append(
        _histogram_stage(
            'Noisy counts per centre',
            clusters.counts_rho,
            'One count per label and centre with discrete Gaussian noise, from which the centres that a '
            'label keeps follow.',
        )
    )
    return stages


def _histogram_stage(name: str, rho: float, explanation: str) -> RhoStage:
    noise = math.sqrt(1 / (2 * rho))
    return RhoStage(
        name=name, rho=rho, explanation=explanation, formula='1/(2·noise²)', numbers=f'1/(2·{noise:.6g}²)'
    )


_PRIVATE_TOKENS = {
    'mean': 'Sampling at most r private tokens per batch from the clipped average of its private logits.',
    'difference': (
        'Sampling at most r private tokens per batch from the public prediction plus the average of the '
        "private prompts' clipped differences from it."
    ),
    'median': (
        'Sampling private tokens from the component-wise medians of the clipped private logits of a batch. '
        'The cost depends on the records and the text; the curator holds it.'
    ),
}


def _decoding_stages(params: MechanismParams) -> list[RhoStage]:
    r, s = params.max_private_tokens, params.batch_size
    two = '2' if params.change is Change.REPLACE else ''
    c, tau = format_exact(params.clip_bound), format_exact(params.temperature)
    priced = not params.is_ex_post
    stages = [
        RhoStage(
            name='Private tokens',
            rho=r * accounting.aggregate_rho(params) if priced else None,
            explanation=_PRIVATE_TOKENS[params.aggregate],
            formula=f'r · ½·({two}c/(s·τ))²' if priced else 'ε = max(−Σ log α, Σ log β)',
            numbers=f'{r} · ½·({two + "·" if two else ""}{c}/({s}·{tau}))²' if priced else '',
        )
    ]
    if params.threshold_noise_scale is not None:
        sigma = format_exact(params.threshold_noise_scale)
        stages.append(
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
                formula=f'r · 2·({two or "1"}/(s·σ))²' if priced else f'ε = {4 if two else 2}/(s·σ) per run',
                numbers=(
                    f'{r} · 2·({two or "1"}/({s}·{sigma}))²'
                    if priced
                    else f'{4 if two else 2}/({s}·{sigma}) per run'
                ),
            )
        )
    return stages


_AGGREGATES = {
    'mean': 'Any component of the average private logits, in nats',
    'difference': 'Any component of the aggregate of clipped differences, in nats',
}


def sensitivities(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[Sensitivity, ...]:
    """What one unit can move."""
    two = params.change is Change.REPLACE
    rows = []
    # How far one context moves a median depends on the others: no row.
    if not params.is_ex_post:
        rows.append(
            Sensitivity(
                quantity=_AGGREGATES[params.aggregate],
                value=params.aggregate_sensitivity,
                formula='2c/s' if two else 'c/s',
            )
        )
    if params.uses_sparse_vector:
        rows.append(
            Sensitivity(
                quantity='Distance between the average private and the public prediction (L1)',
                value=params.distance_sensitivity,
                formula='2/s' if two else '1/s',
            )
        )
    if clusters is not None:
        rows.append(
            Sensitivity(quantity='The vector of counts by label and centre (L2)', value=1.0, formula='1')
        )
    if noisy_counts_rho:
        by = 'label' if clusters is None else 'label and cluster'
        rows.append(Sensitivity(quantity=f'The vector of counts by {by} (L2)', value=1.0, formula='1'))
    return tuple(rows)


def assumptions_enforced(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[str, ...]:
    """What the proof needs and the code sees to."""
    of_what = 'unit id and records' if params.unit == 'user' else 'record'
    group = 'label' if clusters is None else 'cluster'
    plan = (
        f'The number of batches of a {group} comes from its noisy count.'
        if noisy_counts_rho
        else f'The number of batches of a {group} comes from the settings.'
    )
    per_unit = (
        'A user beyond the contribution bound contributes the records with the smallest keyed hashes.'
        if params.unit == 'user'
        else 'A record counts once, in one context.'
    )
    cluster = (
        (
            'The cluster of a record is the kept centre nearest to its embedding, a function of its own text '
            'and of the centres; centres made with another embedder are refused.',
        )
        if clusters is not None
        else ()
    )
    return (
        f'Batches are disjoint: which batch a {unit_nouns(params)[0]} joins is a keyed hash of its own '
        f'{of_what}, never of its position or of the others (PP Assumption 1).',
        per_unit,
        *cluster,
        plan + ' Every planned batch emits, an empty one too.',
        *_aggregation_in_words(params),
        "A context's logits do not depend on the other contexts of its batch.",
        f'A batch stops at {params.max_private_tokens:,} private tokens, in the middle of an example if '
        'need be.',
        'All randomness of decoding derives from a secret 256-bit run key by name, so that a step that is '
        'repeated draws the same noise and is not a second release.',
        'A malformed record, or one whose label is not declared, is left out without stopping the run and '
        'without a trace in any released file.',
    )


def _aggregation_in_words(params: MechanismParams) -> tuple[str, ...]:
    if params.aggregate == 'mean':
        return (
            'Logits are clipped before they are averaged, and sums are divided by the public expected batch '
            'size, whatever a batch holds.',
        )
    if params.aggregate == 'median':
        places = 'two places' if params.change is Change.REPLACE else 'one place'
        return (
            'Logits are clipped before their medians are taken; a batch too small to have neighbours on both '
            'sides of its median counts with the whole clip range, and an empty one predicts what the public '
            'prompt does.',
            f'The range of the medians that one change can cause ({places} from the middle) is computed '
            'exactly, for every private token.',
        )
    vocabulary = (
        'tokens whose public logit is at least the K-th largest minus 2c/s (Top-k+)'
        if params.public_top_k is not None
        else 'tokens within a fixed range below the most likely public one'
    )
    return (
        "Each private prompt's log-probabilities are compared with the public prompt's. The differences are "
        'clipped before they are averaged, and sums are divided by the public expected batch size, whatever '
        'a batch holds.',
        f'Text is made of {vocabulary}, a function of public values alone.',
    )


def assumptions_of_curator(
    params: MechanismParams,
    declared_units: int | None,
    clusters: Clusters | None,
    ledger: LedgerEntry | None,
) -> tuple[str, ...]:
    """What the proof needs and people have to see to."""
    rows = [
        'The labels, the public prompt and every setting were chosen without looking at the records; the '
        'public prompt holds no private text.',
    ]
    if clusters is not None and clusters.source == 'public':
        rows.append(
            'The corpus that the cluster centres were fitted on is public and was chosen without looking at '
            'the records.'
        )
    if clusters is not None and clusters.source == 'k-means':
        rows.append('Nothing of this run is published: its centres show the private records.')
    if clusters is not None and clusters.source == 'dp-k-means':
        rows.append(
            'The centres were fitted on these records once, on one embedding for each unit of privacy.'
        )
    if declared_units is not None:
        rows.append(f'The declared number of {unit_nouns(params)[1]} is public.')
    if params.unit == 'user':
        rows.append("One person has one unit id, and nobody else's records carry it.")
    else:
        rows.append(
            'Hiding one record is enough. A person with several records is protected less (see the limits).'
        )
    if params.is_ex_post:
        rows.append(
            'The data-dependent loss, of the run, of a batch or of a token, is told to nobody who may not '
            'see the records.'
        )
    rows += [
        'The model was not trained on these records.',
        'The run key stays secret; the work directory, its logs and the restricted report are not published.',
        'Runs on the same records share a budget that the curator keeps.'
        if ledger is None
        else 'Every run on these records is charged to the same ledger under the same name, '
        f"'{ledger.dataset}'.",
    ]
    return tuple(rows)


def limits(params: MechanismParams, statement: Statement) -> tuple[str, ...]:
    """What the statement does not say."""
    one = unit_nouns(params)[0]
    rows = ['It does not say that the text is true, fair or harmless, nor that it resembles the records.']
    if statement == 'none':
        return (f'It protects no {one}: the centres of the clusters may reveal any of them.', *rows)
    rows += [
        'It does not hide what is common to many records: learning that is the purpose.',
        'It does not cover what the language model knew before this run.',
    ]
    if statement == 'ex-post':
        rows += [
            'It promises nothing in advance: a second run with the same settings, or the same run on other '
            'records, may lose more.',
            f'It is about one {one}, and says nothing of several together.',
        ]
    elif params.unit == 'user':
        rows.append('It hides one user, not a group: for m users together ρ grows by m².')
    else:
        rows.append('It hides one record: for a person with m records, ρ grows by m².')
    rows += [
        'The randomness is pseudo-random: the guarantee holds against readers who cannot break BLAKE2b '
        'and SHAKE-256.',
        'The analysis is over real numbers; the job computes in floating point.',
    ]
    return tuple(rows)


_REPRODUCTION = """\
from math import exp, log, log1p, sqrt

{values}

def delta_at(epsilon):  # Canonne, Kamath and Steinke 2020, Corollary 13, at its best alpha
    low, high = -700.0, 700.0  # log(alpha - 1), halved around the root of an increasing slope
    for _ in range(200):
        x = (low + high) / 2
        slope = (2 * exp(x) + 1) * rho - epsilon + x - log1p(exp(x))
        low, high = (x, high) if slope < 0 else (low, x)
    alpha = 1 + exp(x)
    return exp(min(0.0, exp(x) * (alpha * rho - epsilon) - x + alpha * (x - log1p(exp(x)))))

low, high = 0.0, rho + sqrt(4 * rho * log(1 / delta))  # the closed form is an upper bound
for _ in range(200):
    epsilon = (low + high) / 2
    low, high = (epsilon, high) if delta_at(epsilon) > delta else (low, epsilon)
print(f'rho = {{rho:.10g}}, epsilon = {{high:.10g}}')
"""


def reproduction(
    params: MechanismParams,
    statement: Statement,
    delta: float,
    noisy_counts_rho: float,
    clusters: Clusters | None,
) -> str:
    """Lines of Python that print rho and epsilon again; empty where no figure is stated."""
    others = []
    if clusters is not None and clusters.centers_rho:
        others.append(('centers', clusters.centers_rho, 'rho of the cluster centres'))
    if clusters is not None:
        others.append(('center_counts', clusters.counts_rho, 'rho of the noisy counts per centre'))
    if noisy_counts_rho:
        others.append(('noisy_counts', noisy_counts_rho, 'rho of the noisy counts'))
    if statement == 'none' or (statement == 'ex-post' and not others):
        return ''
    lines, terms = [f'delta = {delta!r}'], []
    if statement == 'differential privacy':
        lines = [
            f's = {params.batch_size}  # expected batch size',
            f'c = {params.clip_bound!r}  # clip bound',
            f'tau = {params.temperature!r}  # temperature',
            f'r = {params.max_private_tokens}  # cap on the private tokens of one batch',
            f'change = {params.change.value}  # 1: a context comes or goes; 2: its content may be replaced',
            *lines,
        ]
        token = '0.5 * (change * c / (s * tau)) ** 2'
        if params.threshold_noise_scale is not None:
            lines.append(f'sigma = {params.threshold_noise_scale!r}  # threshold noise scale')
            token += ' + 2 * (change / (s * sigma)) ** 2'
        lines.append(f'rho_per_private_token = {token}')
        terms.append('r * rho_per_private_token')
    for name, rho, meaning in others:
        lines.append(f'{name} = {rho!r}  # {meaning}')
        terms.append(name)
    lines.append(f'rho = {" + ".join(terms)}')
    return _REPRODUCTION.format(values='\n'.join(lines))
