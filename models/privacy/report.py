"""What a run tells about its privacy: `PrivacyReport` for anyone, `RestrictedReport` for the curator.

The two are different types that share no field but the run's public name, so that a
true count cannot slip from one into the other (METHOD 8). `PrivacyReport` answers the
checklist of METHOD 9 (PP appendix C, after Ponomareva et al. 2023, section 5.3.3).

Sources: PP = Amin et al. 2024; CKS = Canonne, Kamath and Steinke 2020.
"""

import dataclasses
import decimal
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from models.privacy import accounting
from models.privacy.params import Change, MechanismParams

Setting = str | int | float | bool | None
CountSource = Literal['declared', 'noisy']

SCHEMA_VERSION = 1
PRIVACY_REPORT_SCHEMA = 'dp-corpus/privacy-report'
RESTRICTED_REPORT_SCHEMA = 'dp-corpus/restricted-report'
RELEASABLE = 'Anyone may read this report.'
RESTRICTED = 'Restricted to the curator. It holds true counts: never publish it.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoStage:
    """One paid release of the run.

    Attributes:
        name: Short name of the stage.
        rho: Its zCDP cost.
        explanation: What is paid for, in plain words.
        formula: The cost in symbols.
        numbers: The same formula with the run's numbers put in.
    """

    name: str
    rho: float
    explanation: str
    formula: str
    numbers: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The most that one unit of privacy moves a quantity."""

    quantity: str
    value: float
    formula: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """The public plan of one label.

    Attributes:
        label: The declared label; None where the run declares none.
        batches: Planned batches; every one of them emits.
        noisy_count: Released noisy count of the label's contexts (of its records, where
            records share contexts without unit ids); None where the settings gave
            `batches`.
    """

    label: str | None
    batches: int
    noisy_count: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusTotals:
    """Totals of the corpus, a function of the mechanism's output alone.

    Attributes:
        examples: Synthetic examples, unfinished ones included.
        private_tokens: Tokens sampled from the private aggregate.
        public_tokens: Tokens sampled from the public prompt's logits.
        truncated: Examples that ended without a stop token.
    """

    examples: int
    private_tokens: int
    public_tokens: int
    truncated: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyReport:
    """The releasable report of one run. Every field is public (METHOD 8).

    Attributes:
        run_id: Public name of the run.
        guarantee: The formal statement in one sentence, numbers rounded upwards.
        unit_of_privacy: Whose presence is hidden, in words.
        epsilon: At `delta`, by the optimal-α bound (PP Theorem 1; CKS Corollary 13).
        delta: As set by whoever ran the job.
        epsilon_closed_form: ρ + √(4ρ log(1/δ)), the weaker bound, for comparison.
        rho_total: zCDP cost of the whole run: the sum over `stages`.
        rho_per_private_token: What one more private token per batch would cost.
        delta_relation: How delta compares with the number of units.
        units: The public number of units that delta is compared with; None without one.
        units_source: Whether `units` was declared or is the sum of the noisy counts;
            the true number is never used.
        dp_setting: Who is trusted.
        data_accesses: What the guarantee covers and what it does not.
        mechanism_output: What counts as the output.
        adjacency: The neighbouring relation.
        accounting: How costs add up.
        stages: ρ by stage.
        sensitivities: What one unit can move.
        assumptions_enforced: What the proof needs and the code sees to.
        assumptions_of_curator: What the proof needs and people have to see to.
        limits: What the guarantee does not say.
        plan: Batches and noisy counts by label.
        corpus: Totals of the output.
        mechanism: Every field of `MechanismParams`.
        settings: Every other public setting of the run.
        versions: Software and model versions.
        reproduction: A few lines of Python that print rho and epsilon again.

    A whole sample, as YAML (`to_json` writes the same keys in the same order)::

        schema: dp-corpus/privacy-report
        schema_version: 1
        audience: Anyone may read this report.
        run_id: visits-2025-06
        guarantee: 'The corpus and this report are (ε = 3.88, δ = 1e-6)-differentially private under
          adding or removing any one record: no set of outputs becomes more than e^3.88 times as likely,
          plus 1e-6.'
        unit_of_privacy: 'One record: one row of the input, which is one context of its own.'
        epsilon: 3.8714263862773612
        delta: 1.0e-06
        epsilon_closed_form: 4.319658514473728
        rho_total: 0.29335063437139564
        rho_per_private_token: 0.0009611687812379854
        delta_relation: δ = 1e-6 is n^-1.93 for n = 1,264 records (the noisy count), below 1/n.
        units: 1264
        units_source: noisy
        dp_setting: 'Central differential privacy with a trusted curator: the curator holds the records,
          runs the job and publishes its output. The guarantee is about what readers of that output
          can learn.'
        data_accesses:
        - 'Covered: this run, from reading the records to the corpus and this report.'
        - 'Not covered: other runs on the same records. Their costs add up (ρ by ρ), and no ledger
          of them is kept in this version.'
        - 'Not covered: choosing the settings. Looking at the records, or at the output of trial runs
          on them, to tune a setting is a further access.'
        mechanism_output: All tokens of all batches, in order, with where each example ends and how
          many of its tokens are private and public; and the noisy counts, from which the plan of
          batches follows.
        adjacency: Two datasets are neighbours if one is the other with one record added or removed.
        accounting: 'Zero-concentrated differential privacy (zCDP): the tokens of a batch compose
          sequentially, batches in parallel since their contexts are disjoint, stages by adding their
          ρ. The total becomes (ε, δ) by the bound of Canonne, Kamath and Steinke (2020, Corollary
          13) at its best α. The cost is stated for the cap of 300 private tokens per batch, however
          many a batch used.'
        stages:
        - name: Noisy counts
          rho: 0.005
          explanation: One count per label with discrete Gaussian noise, from which the plan of batches
            follows.
          formula: 1/(2·noise²)
          numbers: 1/(2·10²)
        - name: Private tokens
          rho: 0.05767012687427912
          explanation: Sampling at most r private tokens per batch from the clipped average of its
            private logits.
          formula: r · ½·(c/(s·τ))²
          numbers: 300 · ½·(10/(255·2))²
        - name: Sparse-vector test
          rho: 0.2306805074971165
          explanation: Deciding before each token whether a public one will do; paid once per private
            token.
          formula: r · 2·(1/(s·σ))²
          numbers: 300 · 2·(1/(255·0.2))²
        sensitivities:
        - quantity: Any component of the average private logits, in nats
          value: 0.0392156862745098
          formula: c/s
        - quantity: Distance between the average private and the public prediction (L1)
          value: 0.00392156862745098
          formula: 1/s
        - quantity: The vector of counts by label (L2)
          value: 1.0
          formula: '1'
        assumptions_enforced:
        - 'Batches are disjoint: which batch a record joins is a keyed hash of its own record, never
          of its position or of the others (PP Assumption 1).'
        - A record counts once, in one context.
        - The number of batches of a label comes from its noisy count. Every planned batch emits,
          an empty one too.
        - Logits are clipped before they are averaged, and sums are divided by the public expected
          batch size, whatever a batch holds.
        - A context's logits do not depend on the other contexts of its batch.
        - A batch stops at 300 private tokens, in the middle of an example if need be.
        - All randomness of decoding derives from a secret 256-bit run key by name, so that a step
          that is repeated draws the same noise and is not a second release.
        - A malformed record, or one whose label is not declared, is left out without stopping the
          run and without a trace in any released file.
        assumptions_of_curator:
        - The labels, the public prompt and every setting were chosen without looking at the records;
          the public prompt holds no private text.
        - Hiding one record is enough. A person with several records is protected less (see the limits).
        - The model was not trained on these records.
        - The run key stays secret; the work directory, its logs and the restricted report are not
          published.
        - Runs on the same records share a budget that the curator keeps.
        limits:
        - It does not say that the text is true, fair or harmless, nor that it resembles the records.
        - 'It does not hide what is common to many records: learning that is the purpose.'
        - It does not cover what the language model knew before this run.
        - 'It hides one record: for a person with m records, ρ grows by m².'
        - 'The randomness is pseudo-random: the guarantee holds against readers who cannot break BLAKE2b
          and SHAKE-256.'
        - The analysis is over real numbers; the job computes in floating point.
        plan:
        - label: cardiology
          batches: 2
          noisy_count: 493
        - label: dermatology
          batches: 3
          noisy_count: 771
        corpus:
          examples: 96
          private_tokens: 1412
          public_tokens: 6125
          truncated: 7
        mechanism:
          batch_size: 255
          clip_bound: 10.0
          temperature: 2.0
          max_private_tokens: 300
          threshold: 0.5
          threshold_noise_scale: 0.2
          public_temperature: 1.5
          public_top_k: 1024
          max_example_tokens: 128
          max_batch_tokens: 4000
          unit: example
          examples_per_context: 1
          aggregate: mean
        settings:
          model: gemma3-1b
          private_prompt: |-
            Here is a visit note:
            {context}
            Another one:
          input_format: jsonl
          max_record_chars: 2000
        versions:
          dp-corpus: 0.1.0
          gemma: 3.3.0
          jax: 0.7.1
          python: 3.12.11
        reproduction: |
          from math import exp, log, log1p, sqrt

          s = 255  # expected batch size
          c = 10.0  # clip bound
          tau = 2.0  # temperature
          r = 300  # cap on the private tokens of one batch
          change = 1  # 1: a context comes or goes; 2: its content may be replaced
          delta = 1e-06
          sigma = 0.2  # threshold noise scale
          rho_per_private_token = 0.5 * (change * c / (s * tau)) ** 2 + 2 * (change / (s * sigma)) ** 2
          noisy_counts = 0.005  # rho of the noisy counts
          rho = r * rho_per_private_token + noisy_counts

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
          print(f'rho = {rho:.10g}, epsilon = {high:.10g}')
    """

    run_id: str
    guarantee: str
    unit_of_privacy: str
    epsilon: float
    delta: float
    epsilon_closed_form: float
    rho_total: float
    rho_per_private_token: float
    delta_relation: str
    units: int | None
    units_source: CountSource | None
    dp_setting: str
    data_accesses: tuple[str, ...]
    mechanism_output: str
    adjacency: str
    accounting: str
    stages: tuple[RhoStage, ...]
    sensitivities: tuple[Sensitivity, ...]
    assumptions_enforced: tuple[str, ...]
    assumptions_of_curator: tuple[str, ...]
    limits: tuple[str, ...]
    plan: tuple[GroupPlan, ...]
    corpus: CorpusTotals
    mechanism: Mapping[str, Setting]
    settings: Mapping[str, Setting]
    versions: Mapping[str, str]
    reproduction: str

    def __post_init__(self) -> None:
        stages = math.fsum(stage.rho for stage in self.stages)
        if not math.isclose(stages, self.rho_total, rel_tol=1e-9):
            raise ValueError(
                f'Expected rho_total to be the sum over the stages, got rho_total={self.rho_total!r}, '
                f'sum={stages!r}. Build the report with build_privacy_report and do not edit it.'
            )
        epsilon = accounting.epsilon_from_rho(self.rho_total, self.delta)
        if not math.isclose(epsilon, self.epsilon, rel_tol=1e-6):
            raise ValueError(
                f'Expected epsilon to follow from rho_total and delta, got epsilon={self.epsilon!r}, '
                f'computed={epsilon!r}. Build the report with build_privacy_report and do not edit it.'
            )

    def to_json(self) -> str:
        """The report as JSON text, keys in the order of the fields, newline at the end."""
        return _to_json(self, PRIVACY_REPORT_SCHEMA, RELEASABLE)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyReport':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: Not JSON, another schema or version, an unknown, missing or
                repeated key, a value of another type, or numbers that contradict
                one another.
        """
        return _from_json(cls, text, PRIVACY_REPORT_SCHEMA, RELEASABLE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelContexts:
    """True number of contexts of one label. Restricted to the curator."""

    restricted_label: str | None
    true_count: int = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestrictedReport:
    """Restricted to the curator: true counts of one run, for the work directory alone.

    Nothing here was paid for. Its `repr` shows no number, so that no log line or
    traceback can.

    Attributes:
        run_id: Public name of the run.
        records_read: Rows of the input, rejected ones included.
        rejected_by_reason: Rejected rows by the name of the reason.
        contexts_per_batch: True size of each planned batch, by `str(batch_id)`.
        true_counts_by_label: True contexts by declared label.

    Sample::

        {
          "schema": "dp-corpus/restricted-report",
          "schema_version": 1,
          "audience": "Restricted to the curator. It holds true counts: never publish it.",
          "run_id": "visits-2025-06",
          "records_read": 1201,
          "rejected_by_reason": {"blank_text": 3},
          "contexts_per_batch": {"0000-000000": 251, "0000-000001": 260},
          "true_counts_by_label": [{"restricted_label": null, "true_count": 511}]
        }
    """

    run_id: str
    records_read: int = dataclasses.field(repr=False)
    rejected_by_reason: Mapping[str, int] = dataclasses.field(repr=False)
    contexts_per_batch: Mapping[str, int] = dataclasses.field(repr=False)
    true_counts_by_label: tuple[LabelContexts, ...] = dataclasses.field(repr=False)

    def to_json(self) -> str:
        """The report as JSON text, marked as restricted."""
        return _to_json(self, RESTRICTED_REPORT_SCHEMA, RESTRICTED)

    @classmethod
    def from_json(cls, text: str) -> 'RestrictedReport':
        """Reads what `to_json` wrote; errors as `PrivacyReport.from_json`."""
        return _from_json(cls, text, RESTRICTED_REPORT_SCHEMA, RESTRICTED)


def build_privacy_report(
    params: MechanismParams,
    *,
    run_id: str,
    delta: float,
    plan: Sequence[GroupPlan],
    corpus: CorpusTotals,
    settings: Mapping[str, Setting],
    versions: Mapping[str, str],
    noisy_counts_rho: float = 0.0,
    declared_units: int | None = None,
) -> PrivacyReport:
    """The report of a finished run, from public values alone.

    Args:
        params: The mechanism's settings; the stages of decoding follow from them.
        run_id: Public name of the run.
        delta: In (0, 1); there is no default.
        plan: Planned batches, one entry per declared label.
        corpus: Totals of the corpus.
        settings: Every other public setting, by name.
        versions: Version of each piece of software and of the model, by name.
        noisy_counts_rho: zCDP cost of the noisy counts in `plan`; 0 where the settings
            gave the batches.
        declared_units: Public number of records (of users, under the user unit), for
            the comparison with delta; None takes the sum of the noisy counts.

    Raises:
        ValueError: delta outside (0, 1); noisy counts without a cost or a cost without
            them; a setting that is not a plain finite value, that repeats a mechanism
            setting, or that bears the name of a restricted field.
    """
    plan = tuple(plan)
    counted = [group.noisy_count is not None for group in plan]
    if not plan or any(counted) != all(counted) or any(counted) != (noisy_counts_rho > 0):
        raise ValueError(
            f'Expected noisy counts for every label and their cost, or neither, got labels={len(plan)}, '
            f'labels with a noisy count={sum(counted)}, noisy_counts_rho={noisy_counts_rho!r}. Pass the '
            'plan and the cost that the accountant charged.'
        )
    mechanism = dataclasses.asdict(params)
    _check_settings(settings, mechanism)

    stages = _stages(params, noisy_counts_rho)
    rho_total = noisy_counts_rho + accounting.generation_rho(params)
    epsilon = accounting.epsilon_from_rho(rho_total, delta)
    units = declared_units
    source: CountSource | None = None if declared_units is None else 'declared'
    if units is None and all(counted):
        units, source = sum(group.noisy_count or 0 for group in plan), 'noisy'
    one, many = _unit_nouns(params)
    return PrivacyReport(
        run_id=run_id,
        guarantee=(
            f'The corpus and this report are (ε = {format_up(epsilon)}, δ = '
            f'{format_exact(delta)})-differentially private under adding or removing any one {one}: no set '
            f'of outputs becomes more than e^{format_up(epsilon)} times as likely, plus '
            f'{format_exact(delta)}.'
        ),
        unit_of_privacy=_unit_of_privacy(params),
        epsilon=epsilon,
        delta=delta,
        epsilon_closed_form=accounting.epsilon_closed_form(rho_total, delta),
        rho_total=rho_total,
        rho_per_private_token=accounting.rho_per_private_token(params),
        delta_relation=_delta_relation(delta, units, source, many),
        units=units,
        units_source=source,
        dp_setting=(
            'Central differential privacy with a trusted curator: the curator holds the records, runs the '
            'job and publishes its output. The guarantee is about what readers of that output can learn.'
        ),
        data_accesses=(
            'Covered: this run, from reading the records to the corpus and this report.',
            'Not covered: other runs on the same records. Their costs add up (ρ by ρ), and no ledger of '
            'them is kept in this version.',
            'Not covered: choosing the settings. Looking at the records, or at the output of trial runs '
            'on them, to tune a setting is a further access.',
        ),
        mechanism_output=(
            'All tokens of all batches, in order, with where each example ends and how many of its tokens '
            'are private and public'
            + ('; and the noisy counts, from which the plan of batches follows.' if noisy_counts_rho else '.')
        ),
        adjacency=f'Two datasets are neighbours if one is the other with one {one} added or removed.',
        accounting=(
            'Zero-concentrated differential privacy (zCDP): the tokens of a batch compose sequentially, '
            'batches in parallel since their contexts are disjoint, stages by adding their ρ. The total '
            'becomes (ε, δ) by the bound of Canonne, Kamath and Steinke (2020, Corollary 13) at its best '
            f'α. The cost is stated for the cap of {params.max_private_tokens:,} private tokens per batch, '
            'however many a batch used.'
        ),
        stages=stages,
        sensitivities=_sensitivities(params, noisy_counts_rho),
        assumptions_enforced=_assumptions_enforced(params, noisy_counts_rho),
        assumptions_of_curator=_assumptions_of_curator(params, declared_units),
        limits=_limits(params),
        plan=plan,
        corpus=corpus,
        mechanism=mechanism,
        settings=dict(settings),
        versions=dict(versions),
        reproduction=_reproduction(params, delta, noisy_counts_rho),
    )


def format_up(value: float, digits: int = 3) -> str:
    """`value` at so many significant digits, rounded upwards: a bound that is shown still holds.

    >>> format_up(2.9301), format_up(0.1709), format_up(8.0)
    ('2.94', '0.171', '8')
    """
    # 1 part in 10¹² of slack, or the binary form of 0.3 would show as 0.301.
    exact = decimal.Decimal(value) * (1 - decimal.Decimal('1e-12'))
    return _plain(exact, decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING))


def format_exact(value: float) -> str:
    """The shortest decimal that reads back as `value`, without needless zeros.

    >>> format_exact(1e-06), format_exact(0.05), format_exact(2.0)
    ('1e-6', '0.05', '2')
    """
    return _plain(decimal.Decimal(repr(float(value))), decimal.Context(prec=17))


def _plain(value: decimal.Decimal, context: decimal.Context) -> str:
    rounded = context.plus(value).normalize(decimal.Context(prec=17))
    exponent = rounded.adjusted()
    if rounded == 0 or -4 <= exponent <= 15:
        return f'{rounded:f}'
    return f'{rounded.scaleb(-exponent):f}e{exponent}'


def _unit_nouns(params: MechanismParams) -> tuple[str, str]:
    """The unit of privacy as one and as many."""
    return ('user', 'users') if params.unit == 'user' else ('record', 'records')


def _unit_of_privacy(params: MechanismParams) -> str:
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
            'another, so a change may replace the content of a context, and both sensitivities of '
            'decoding double.'
        )
    return 'One record: one row of the input, which is one context of its own.'


def _delta_relation(delta: float, units: int | None, source: CountSource | None, many: str) -> str:
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


def _stages(params: MechanismParams, noisy_counts_rho: float) -> tuple[RhoStage, ...]:
    r, s = params.max_private_tokens, params.batch_size
    two = '2' if params.change is Change.REPLACE else ''
    c, tau = format_exact(params.clip_bound), format_exact(params.temperature)
    stages = []
    if noisy_counts_rho:
        noise = math.sqrt(1 / (2 * noisy_counts_rho))
        stages.append(
            RhoStage(
                name='Noisy counts',
                rho=noisy_counts_rho,
                explanation=(
                    'One count per label with discrete Gaussian noise, from which the plan of batches '
                    'follows.'
                ),
                formula='1/(2·noise²)',
                numbers=f'1/(2·{noise:.6g}²)',
            )
        )
    stages.append(
        RhoStage(
            name='Private tokens',
            rho=r * accounting.aggregate_rho(params),
            explanation=(
                'Sampling at most r private tokens per batch from the clipped average of its private logits.'
            ),
            formula=f'r · ½·({two}c/(s·τ))²',
            numbers=f'{r} · ½·({two + "·" if two else ""}{c}/({s}·{tau}))²',
        )
    )
    if params.threshold_noise_scale is not None:
        sigma = format_exact(params.threshold_noise_scale)
        stages.append(
            RhoStage(
                name='Sparse-vector test',
                rho=r * accounting.sparse_vector_rho(params),
                explanation=(
                    'Deciding before each token whether a public one will do; paid once per private token.'
                ),
                formula=f'r · 2·({two or "1"}/(s·σ))²',
                numbers=f'{r} · 2·({two or "1"}/({s}·{sigma}))²',
            )
        )
    return tuple(stages)


def _sensitivities(params: MechanismParams, noisy_counts_rho: float) -> tuple[Sensitivity, ...]:
    two = params.change is Change.REPLACE
    rows = [
        Sensitivity(
            quantity='Any component of the average private logits, in nats',
            value=params.aggregate_sensitivity,
            formula='2c/s' if two else 'c/s',
        )
    ]
    if params.uses_sparse_vector:
        rows.append(
            Sensitivity(
                quantity='Distance between the average private and the public prediction (L1)',
                value=params.distance_sensitivity,
                formula='2/s' if two else '1/s',
            )
        )
    if noisy_counts_rho:
        rows.append(Sensitivity(quantity='The vector of counts by label (L2)', value=1.0, formula='1'))
    return tuple(rows)


def _assumptions_enforced(params: MechanismParams, noisy_counts_rho: float) -> tuple[str, ...]:
    of_what = 'unit id and records' if params.unit == 'user' else 'record'
    plan = (
        'The number of batches of a label comes from its noisy count.'
        if noisy_counts_rho
        else 'The number of batches of a label comes from the settings.'
    )
    per_unit = (
        'A user beyond the contribution bound contributes the records with the smallest keyed hashes.'
        if params.unit == 'user'
        else 'A record counts once, in one context.'
    )
    return (
        f'Batches are disjoint: which batch a {_unit_nouns(params)[0]} joins is a keyed hash of its own '
        f'{of_what}, never of its position or of the others (PP Assumption 1).',
        per_unit,
        plan + ' Every planned batch emits, an empty one too.',
        'Logits are clipped before they are averaged, and sums are divided by the public expected batch '
        'size, whatever a batch holds.',
        "A context's logits do not depend on the other contexts of its batch.",
        f'A batch stops at {params.max_private_tokens:,} private tokens, in the middle of an example if '
        'need be.',
        'All randomness of decoding derives from a secret 256-bit run key by name, so that a step that is '
        'repeated draws the same noise and is not a second release.',
        'A malformed record, or one whose label is not declared, is left out without stopping the run and '
        'without a trace in any released file.',
    )


def _assumptions_of_curator(params: MechanismParams, declared_units: int | None) -> tuple[str, ...]:
    rows = [
        'The labels, the public prompt and every setting were chosen without looking at the records; the '
        'public prompt holds no private text.',
    ]
    if declared_units is not None:
        rows.append(f'The declared number of {_unit_nouns(params)[1]} is public.')
    if params.unit == 'user':
        rows.append("One person has one unit id, and nobody else's records carry it.")
    else:
        rows.append(
            'Hiding one record is enough. A person with several records is protected less (see the limits).'
        )
    rows += [
        'The model was not trained on these records.',
        'The run key stays secret; the work directory, its logs and the restricted report are not published.',
        'Runs on the same records share a budget that the curator keeps.',
    ]
    return tuple(rows)


def _limits(params: MechanismParams) -> tuple[str, ...]:
    rows = [
        'It does not say that the text is true, fair or harmless, nor that it resembles the records.',
        'It does not hide what is common to many records: learning that is the purpose.',
        'It does not cover what the language model knew before this run.',
    ]
    if params.unit == 'user':
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


def _reproduction(params: MechanismParams, delta: float, noisy_counts_rho: float) -> str:
    lines = [
        f's = {params.batch_size}  # expected batch size',
        f'c = {params.clip_bound!r}  # clip bound',
        f'tau = {params.temperature!r}  # temperature',
        f'r = {params.max_private_tokens}  # cap on the private tokens of one batch',
        f'change = {params.change.value}  # 1: a context comes or goes; 2: its content may be replaced',
        f'delta = {delta!r}',
    ]
    token = '0.5 * (change * c / (s * tau)) ** 2'
    if params.threshold_noise_scale is not None:
        lines.append(f'sigma = {params.threshold_noise_scale!r}  # threshold noise scale')
        token += ' + 2 * (change / (s * sigma)) ** 2'
    lines.append(f'rho_per_private_token = {token}')
    total = 'r * rho_per_private_token'
    if noisy_counts_rho:
        lines.append(f'noisy_counts = {noisy_counts_rho!r}  # rho of the noisy counts')
        total += ' + noisy_counts'
    lines.append(f'rho = {total}')
    return _REPRODUCTION.format(values='\n'.join(lines))


def _check_settings(settings: Mapping[str, Setting], mechanism: Mapping[str, Setting]) -> None:
    restricted = {field.name for field in dataclasses.fields(RestrictedReport)} - {'run_id'}
    for name, value in settings.items():
        if name in restricted:
            raise ValueError(
                f'Expected public settings, got name={name!r}, a field of RestrictedReport. Leave it out.'
            )
        if name in mechanism:
            raise ValueError(
                f'Expected settings beside those of MechanismParams, got name={name!r} twice. Leave it out.'
            )
        if not isinstance(value, Setting) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(
                'Expected each setting to be a string, a finite number, a truth value or None, got '
                f'name={name!r} of type {type(value).__name__}. Flatten it.'
            )


def _to_json(report: Any, schema: str, audience: str) -> str:
    header = {'schema': schema, 'schema_version': SCHEMA_VERSION, 'audience': audience}
    return (
        json.dumps(header | dataclasses.asdict(report), indent=2, ensure_ascii=False, allow_nan=False) + '\n'
    )


def _from_json[T](cls: type[T], text: str, schema: str, audience: str) -> T:
    data = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    header = {'schema': schema, 'schema_version': SCHEMA_VERSION, 'audience': audience}
    for name, expected in header.items():
        found = data.pop(name, None) if isinstance(data, dict) else None
        if found != expected:
            raise ValueError(
                f'Expected {name}={expected!r}, got {name}={found!r}. Read it with the version that wrote it.'
            )
    return _decode(cls, data, cls.__name__)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError('Expected each key once in a JSON object, got a repeated key. Do not edit reports.')
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f'Expected finite numbers, got {name}. Do not edit reports by hand.')


def _decode(expected: Any, value: Any, path: str) -> Any:
    """`value`, as read from JSON, as an object of the annotated type, or ValueError.

    The message names the place and the types but quotes no value.
    """
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if isinstance(expected, type) and dataclasses.is_dataclass(expected) and isinstance(value, dict):
        hints = typing.get_type_hints(expected)
        if unknown := value.keys() ^ hints.keys():
            raise ValueError(
                f'Expected the fields of {path} and no others, got '
                f'missing={sorted(hints.keys() - value.keys())}, unknown={sorted(unknown - hints.keys())}. '
                'Read it with the version that wrote it.'
            )
        return expected(**{name: _decode(hints[name], value[name], f'{path}.{name}') for name in hints})
    if origin is tuple and isinstance(value, list):
        return tuple(_decode(arguments[0], item, f'{path}[{index}]') for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: _decode(arguments[1], item, f'{path}[{key!r}]') for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        for option in arguments:
            if _matches(option, value):
                return value
    elif _matches(expected, value):
        return value
    raise ValueError(
        f'Expected {path} to be {expected}, got type={type(value).__name__}. Do not edit reports by hand.'
    )


def _matches(expected: Any, value: Any) -> bool:
    if typing.get_origin(expected) is Literal:
        return value in typing.get_args(expected)
    return type(value) is expected or (expected is float and type(value) is int)
