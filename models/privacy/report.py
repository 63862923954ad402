"""What a run tells about its privacy: `PrivacyReport` for anyone, `RestrictedReport` for the curator.

The two are different types that share no field but the run's public name, so that a
true count cannot slip from one into the other (METHOD 8). `PrivacyReport` answers the
checklist of METHOD 9 (PP appendix C, after Ponomareva et al. 2023, section 5.3.3).

A run makes one of three kinds of statement, and its report says first which:
(epsilon, delta) in advance; for the median a loss known afterwards, and only to the
curator (METHOD 5); or none, for research, where private records placed the clusters
without noise (METHOD 3).

Sources: PP = Amin et al. 2024; CKS = Canonne, Kamath and Steinke 2020; CL = the paper on
clusters and the median.
"""

import dataclasses
import decimal
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from models.privacy import accounting
from models.privacy.params import Change, MechanismParams

if typing.TYPE_CHECKING:
    from models.privacy.ex_post import BatchLoss

Setting = str | int | float | bool | None
CountSource = Literal['declared', 'noisy']
CentersSource = Literal['public', 'k-means', 'dp-k-means']
Statement = Literal['differential privacy', 'ex-post', 'none']

SCHEMA_VERSION = 3
PRIVACY_REPORT_SCHEMA = 'dp-corpus/privacy-report'
RESTRICTED_REPORT_SCHEMA = 'dp-corpus/restricted-report'
RELEASABLE = 'Anyone may read this report.'
RESEARCH_ONLY = 'Research only: never publish it or its corpus.'
_TOGETHER = 'Covered together: '
# Relative slack of a budget: decimal numbers are not exact in binary.
BUDGET_SLACK = 1e-12
RESTRICTED = 'Restricted to the curator. It holds true counts: never publish it.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoStage:
    """One paid release of the run.

    Attributes:
        name: Short name of the stage.
        rho: Its zCDP cost; None where no bound holds in advance, or none at all.
        explanation: What is paid for, in plain words.
        formula: The cost in symbols.
        numbers: The same formula with the run's numbers put in; empty where it has none.
    """

    name: str
    rho: float | None
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
    """The public plan of one group: a label, or a label and a cluster.

    Attributes:
        label: The declared label; None where the run declares none.
        cluster: Index of a centre that the label keeps; None without clusters.
        batches: Planned batches; every one of them emits.
        noisy_count: Released noisy count of the group's contexts (of its records, where
            records share contexts without unit ids); None where the settings gave
            `batches`.
    """

    label: str | None
    cluster: int | None = None
    batches: int
    noisy_count: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCounts:
    """The released first histogram of one label (METHOD 3, steps 2 and 3).

    Attributes:
        label: The declared label; None where the run declares none.
        kept: Ascending indices of the centres that the label keeps.
        counts: Noisy count of the label's contexts nearest to each centre, all K of them.
    """

    label: str | None
    kept: tuple[int, ...]
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusters:
    """Where the clusters of a run come from, and what they cost. All of it is public.

    Attributes:
        source: 'public': k-means on a public corpus, free. 'dp-k-means': centres of the
            private records, for `centers_rho`. 'k-means': centres of the private
            records without noise, so that the run has no guarantee.
        centers_rho: zCDP cost of the centres; 0 unless the source is 'dp-k-means'.
        counts_rho: zCDP cost of `center_counts`.
        embedder: Name of what embeds the texts.
        embedder_fingerprint: SHA-256 of everything that determines its output.
        centers_fingerprint: SHA-256 of the centres.
        corpus_fingerprint: SHA-256 of the public texts that the centres were fitted on;
            None for a private corpus.
        corpus_texts: Number of those texts; None for a private corpus.
        center_counts: One entry per declared label.
    """

    source: CentersSource
    centers_rho: float
    counts_rho: float
    embedder: str
    embedder_fingerprint: str
    centers_fingerprint: str
    corpus_fingerprint: str | None
    corpus_texts: int | None
    center_counts: tuple[CenterCounts, ...]

    def __post_init__(self) -> None:
        if (self.centers_rho > 0) != (self.source == 'dp-k-means') or not self.counts_rho > 0:
            raise ValueError(
                "Expected counts_rho > 0, and centers_rho > 0 for 'dp-k-means' alone, got "
                f'source={self.source!r}, centers_rho={self.centers_rho!r}, counts_rho={self.counts_rho!r}. '
                'Pass the costs that the accountant charged.'
            )
        public = self.source == 'public'
        if (self.corpus_fingerprint is not None) != public or (self.corpus_texts is not None) != public:
            raise ValueError(
                'Expected the fingerprint and the number of texts of a public corpus, and of no other, got '
                f'source={self.source!r}. Both are facts about the corpus: leave them out for a private one.'
            )
        if not self.center_counts or len({len(cells.counts) for cells in self.center_counts}) > 1:
            raise ValueError(
                f'Expected as many noisy counts for each label, got labels={len(self.center_counts)}. '
                'Pass the clustering of the plan.'
            )
        for cells in self.center_counts:
            if list(cells.kept) != sorted(set(cells.kept) & set(range(len(cells.counts)))):
                raise ValueError(
                    f'Expected kept to be ascending indices below {len(cells.counts)}, got '
                    f'kept={cells.kept!r}. Pass the clustering of the plan.'
                )

    @property
    def centers(self) -> int:
        """Number K of centres."""
        return len(self.center_counts[0].counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """What the ledger says of a run: the runs on the dataset up to this one, and their sum.

    A function of what was charged up to this run alone, so it stays the same whatever
    is charged later, and a resumed run gives the same report. All of it is public.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        run_number: Place of this run among those charged to the dataset, from 1.
        rho_before: zCDP cost of all runs before it.
        rho: That of this run.
        rho_after: Their sum, which holds for all these runs together.
        epsilon_after: The same at `delta`, by the optimal-α bound.
        delta: The dataset's, which need not be that of the run.
        rho_budget: What the dataset's runs might cost when this one was charged.
        epsilon_budget: The budget as it was given, where it was given so; None otherwise.
    """

    dataset: str
    run_number: int
    rho_before: float
    rho: float
    rho_after: float
    epsilon_after: float
    delta: float
    rho_budget: float
    epsilon_budget: float | None

    def __post_init__(self) -> None:
        if self.run_number < 1 or (self.rho_before > 0) != (self.run_number > 1) or not self.rho > 0:
            raise ValueError(
                'Expected a first run with nothing before it, or a later one with a cost before it, got '
                f'run_number={self.run_number!r}, rho_before={self.rho_before!r}, rho={self.rho!r}. '
                'Take the entry from the ledger and do not edit it.'
            )
        epsilon = accounting.epsilon_from_rho(self.rho_after, self.delta)
        if not (
            math.isclose(self.rho_before + self.rho, self.rho_after, rel_tol=1e-9)
            and math.isclose(epsilon, self.epsilon_after, rel_tol=1e-6)
        ):
            raise ValueError(
                'Expected rho_after to be the sum and epsilon_after to follow from it, got '
                f'rho_after={self.rho_after!r}, sum={self.rho_before + self.rho!r}, '
                f'epsilon_after={self.epsilon_after!r}, computed={epsilon!r}. '
                'Take the entry from the ledger and do not edit it.'
            )
        # Twice the slack: the sum is rounded here, and exact where the ledger decides.
        if not self.rho_after <= self.rho_budget * (1 + 2 * BUDGET_SLACK):
            raise ValueError(
                f'Expected runs within their budget, got rho_after={self.rho_after!r}, '
                f'rho_budget={self.rho_budget!r}. Publish nothing of this run.'
            )


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
        statement: 'differential privacy': (epsilon, delta), known in advance. 'ex-post': the
            loss of the text is a function of the records and of the text itself, is
            held by the curator and stands nowhere in this report. 'none': research only.
        guarantee: The formal statement in words, numbers rounded upwards.
        unit_of_privacy: Whose presence is hidden, in words.
        epsilon: At `delta`, by the optimal-α bound (PP Theorem 1; CKS Corollary 13); None,
            like the next two costs, unless the statement is 'differential privacy'.
        delta: As set by whoever ran the job.
        epsilon_closed_form: ρ + √(4ρ log(1/δ)), the weaker bound, for comparison.
        rho_total: zCDP cost of the whole run: the sum over `stages`.
        rho_per_private_token: What one more private token per batch would cost; None where
            that is not known in advance or bounds nothing.
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
        plan: Batches and noisy counts by group.
        clusters: Where the groups' clusters come from; None without clusters.
        ledger: The runs on the same records so far, this one included; None where the run
            was charged to no ledger, as one without a price in advance never is.
        corpus: Totals of the output.
        mechanism: Every field of `MechanismParams`.
        settings: Every other public setting of the run.
        versions: Software and model versions.
        reproduction: A few lines of Python that print rho and epsilon again (ex-post: those
            of the noisy counts); empty where no figure is stated.

    A whole sample, as YAML (`to_json` writes the same keys in the same order)::

        schema: dp-corpus/privacy-report
        schema_version: 3
        audience: Anyone may read this report.
        run_id: visits-2025-06
        statement: differential privacy
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
        - 'Covered together: all 2 runs on dataset ''visits'' that the ledger has charged up to and including
          this one are together ρ-zCDP for ρ = 0.544, hence (ε = 5.48, δ = 1e-6)-differentially private,
          under adding or removing any one record, for all their outputs taken as one. Where the cost
          of a run, or whether to start it, was decided by outputs of earlier ones, the budget bounds
          all of them in place of the sum: ρ = 1.06, or ε = 8 at this δ. The ledger starts no run past
          it.'
        - 'Not covered: runs on the same records that were not charged to this ledger under this name,
          and runs charged after this one, whose reports state the sum anew.'
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
        - Every run on these records is charged to the same ledger under the same name, 'visits'.
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
          cluster: null
          batches: 2
          noisy_count: 493
        - label: dermatology
          cluster: null
          batches: 3
          noisy_count: 771
        clusters: null
        ledger:
          dataset: visits
          run_number: 2
          rho_before: 0.25
          rho: 0.29335063437139564
          rho_after: 0.5433506343713956
          epsilon_after: 5.473330917014997
          delta: 1.0e-06
          rho_budget: 1.0523580045569878
          epsilon_budget: 8.0
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
    statement: Statement
    guarantee: str
    unit_of_privacy: str
    epsilon: float | None
    delta: float
    epsilon_closed_form: float | None
    rho_total: float | None
    rho_per_private_token: float | None
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
    clusters: Clusters | None
    ledger: LedgerEntry | None
    corpus: CorpusTotals
    mechanism: Mapping[str, Setting]
    settings: Mapping[str, Setting]
    versions: Mapping[str, str]
    reproduction: str

    def __post_init__(self) -> None:
        costs = [stage.rho for stage in self.stages]
        expected = _statement(self.mechanism.get('aggregate') == 'median', self.clusters)
        totals = (self.epsilon, self.epsilon_closed_form, self.rho_total, self.rho_per_private_token)
        is_priced = expected == 'differential privacy'
        if (
            self.statement != expected
            or any((total is not None) != is_priced for total in totals)
            or (None not in costs) != is_priced
        ):
            raise ValueError(
                f'Expected statement={expected!r}, with epsilon, rho and the cost of every stage under '
                f"'differential privacy' alone, got statement={self.statement!r}, epsilon={self.epsilon!r}, "
                f'rho_total={self.rho_total!r}. Build the report with build_privacy_report; do not edit it.'
            )
        if self.ledger is not None and (
            self.rho_total is None or not math.isclose(self.ledger.rho, self.rho_total, rel_tol=1e-9)
        ):
            raise ValueError(
                'Expected the ledger to have charged what the run costs, got '
                f'charged={self.ledger.rho!r}, rho_total={self.rho_total!r}. A run without a price in '
                'advance is charged to no ledger: pass none.'
            )
        if self.rho_total is None or self.epsilon is None:
            return
        stages = math.fsum(cost for cost in costs if cost is not None)
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

    @property
    def audience(self) -> str:
        """Who may read the report, in a sentence."""
        return RESEARCH_ONLY if self.statement == 'none' else RELEASABLE

    @property
    def covered_together(self) -> str | None:
        """What holds of all runs on the same records up to this one; None without a ledger."""
        found = [access for access in self.data_accesses if access.startswith(_TOGETHER)]
        return found[0][len(_TOGETHER)].upper() + found[0][len(_TOGETHER) + 1 :] if found else None

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The accesses of `data_accesses` that no figure of this report speaks of."""
        return tuple(access for access in self.data_accesses if access.startswith('Not covered'))

    def to_json(self) -> str:
        """The report as JSON text, keys in the order of the fields, newline at the end."""
        return _to_json(self, PRIVACY_REPORT_SCHEMA)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyReport':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: Not JSON, another schema or version, an unknown, missing or
                repeated key, a value of another type, or numbers that contradict
                one another.
        """
        return _from_json(cls, text, PRIVACY_REPORT_SCHEMA)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupContexts:
    """True number of contexts of one group. Restricted to the curator.

    Attributes:
        restricted_label: The group's declared label; None where the run declares none.
        restricted_cluster: The group's cluster; None without clusters.
        true_count: Contexts that its batches hold.
    """

    restricted_label: str | None
    restricted_cluster: int | None = None
    true_count: int = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchEpsilon:
    """Data-dependent loss of one batch of a median run. Restricted to the curator.

    Attributes:
        ex_post_epsilon: max(−Σ log α, Σ log β) over the batch's tokens (METHOD 5).
        paper_epsilon: Σ max(−log α, log β), CL's larger figure, for comparison.
    """

    ex_post_epsilon: float = dataclasses.field(repr=False)
    paper_epsilon: float = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceLoss:
    """Losses of the private tokens at one place in an example. Restricted to the curator.

    The loss of a token is max(−log α, log β), without the sparse-vector test.

    Attributes:
        tokens: Private tokens at this place, over all examples of all batches.
        mean: Their mean loss; 0 without tokens, like the next two.
        lower_decile: A tenth of the losses lies below.
        upper_decile: A tenth of the losses lies above.
    """

    tokens: int = dataclasses.field(repr=False)
    mean: float = dataclasses.field(repr=False)
    lower_decile: float = dataclasses.field(repr=False)
    upper_decile: float = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExPostLosses:
    """Data-dependent losses of a median run (METHOD 5). Restricted to the curator.

    Attributes:
        run_ex_post_epsilon: Largest `ex_post_epsilon` of a batch: the run's loss.
        run_paper_epsilon: Largest `paper_epsilon` of a batch, for comparison.
        loss_by_batch: Loss of each batch, by `str(batch_id)`.
        loss_by_place: Losses by place in the example, from 0.
    """

    run_ex_post_epsilon: float = dataclasses.field(repr=False)
    run_paper_epsilon: float = dataclasses.field(repr=False)
    loss_by_batch: Mapping[str, BatchEpsilon] = dataclasses.field(repr=False)
    loss_by_place: tuple[PlaceLoss, ...] = dataclasses.field(repr=False)


def ex_post_losses(losses: Sequence['BatchLoss'], params: MechanismParams) -> ExPostLosses:
    """What the curator learns of a median run's losses, from those of its batches.

    Args:
        losses: One entry for each planned batch, in any order.
        params: The mechanism's settings.

    Raises:
        ValueError: The aggregate is not the median, or there is no batch.
    """
    if not params.is_ex_post or not losses:
        raise ValueError(
            f"Expected the losses of a run with aggregate='median', got aggregate={params.aggregate!r}, "
            f'batches={len(losses)}. Other aggregates are priced in advance: leave the losses out.'
        )
    by_batch = {
        loss.batch_id: BatchEpsilon(
            ex_post_epsilon=loss.epsilon(params), paper_epsilon=loss.paper_epsilon(params)
        )
        for loss in sorted(losses, key=lambda loss: loss.batch_id)
    }
    by_place: dict[int, list[float]] = {}
    for loss in losses:
        for place, is_private, up, down in zip(
            loss.places, loss.is_private, loss.minus_log_alpha, loss.log_beta, strict=True
        ):
            found = by_place.setdefault(place, [])
            if is_private:
                found.append(max(up, down))
    return ExPostLosses(
        run_ex_post_epsilon=max(batch.ex_post_epsilon for batch in by_batch.values()),
        run_paper_epsilon=max(batch.paper_epsilon for batch in by_batch.values()),
        loss_by_batch=by_batch,
        loss_by_place=tuple(
            _place_loss(by_place.get(place, [])) for place in range(max(by_place, default=-1) + 1)
        ),
    )


def _place_loss(losses: Sequence[float]) -> PlaceLoss:
    if not losses:
        return PlaceLoss(tokens=0, mean=0.0, lower_decile=0.0, upper_decile=0.0)
    # As sorted, or the order in which batches finish would show in the last digit.
    ordered = np.sort(np.asarray(losses, np.float64))
    low, high = np.quantile(ordered, (0.1, 0.9))
    return PlaceLoss(
        tokens=len(losses), mean=float(ordered.mean()), lower_decile=float(low), upper_decile=float(high)
    )


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
        true_counts_by_group: True contexts by label and cluster.
        losses: Data-dependent losses of a median run; None for the other aggregates.

    Sample::

        {
          "schema": "dp-corpus/restricted-report",
          "schema_version": 3,
          "audience": "Restricted to the curator. It holds true counts: never publish it.",
          "run_id": "visits-2025-06",
          "records_read": 1201,
          "rejected_by_reason": {"blank_text": 3},
          "contexts_per_batch": {"0000-000000": 251, "0000-000001": 260},
          "true_counts_by_group": [
            {"restricted_label": null, "restricted_cluster": null, "true_count": 511}
          ],
          "losses": {
            "run_ex_post_epsilon": 2.25,
            "run_paper_epsilon": 3.5,
            "loss_by_batch": {
              "0000-000000": {"ex_post_epsilon": 2.25, "paper_epsilon": 3.5},
              "0000-000001": {"ex_post_epsilon": 1.75, "paper_epsilon": 2.25}
            },
            "loss_by_place": [
              {"tokens": 8, "mean": 0.5, "lower_decile": 0.25, "upper_decile": 0.875}
            ]
          }
        }
    """

    run_id: str
    records_read: int = dataclasses.field(repr=False)
    rejected_by_reason: Mapping[str, int] = dataclasses.field(repr=False)
    contexts_per_batch: Mapping[str, int] = dataclasses.field(repr=False)
    true_counts_by_group: tuple[GroupContexts, ...] = dataclasses.field(repr=False)
    losses: ExPostLosses | None = dataclasses.field(default=None, repr=False)

    @property
    def audience(self) -> str:
        """Who may read the report, in a sentence."""
        return RESTRICTED

    def to_json(self) -> str:
        """The report as JSON text, marked as restricted."""
        return _to_json(self, RESTRICTED_REPORT_SCHEMA)

    @classmethod
    def from_json(cls, text: str) -> 'RestrictedReport':
        """Reads what `to_json` wrote; errors as `PrivacyReport.from_json`."""
        return _from_json(cls, text, RESTRICTED_REPORT_SCHEMA)


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
    clusters: Clusters | None = None,
    declared_units: int | None = None,
    ledger: LedgerEntry | None = None,
) -> PrivacyReport:
    """The report of a finished run, from public values alone.

    Args:
        params: The mechanism's settings; the stages of decoding follow from them.
        run_id: Public name of the run.
        delta: In (0, 1); there is no default.
        plan: Planned batches, one entry per declared label, or per cluster that it keeps.
        corpus: Totals of the corpus.
        settings: Every other public setting, by name.
        versions: Version of each piece of software and of the model, by name.
        noisy_counts_rho: zCDP cost of the noisy counts in `plan`; 0 where the settings
            gave the batches.
        clusters: Where the clusters in `plan` come from, with costs of their own; None
            without clusters.
        declared_units: Public number of records (of users, under the user unit), for
            the comparison with delta; None takes the sum of the noisy counts.
        ledger: What reserving the run's budget returned; None where it was not charged.

    Raises:
        ValueError: delta outside (0, 1); noisy counts without a cost or a cost without them;
            a plan whose clusters are not those that `clusters` keeps; a ledger that charged
            another cost, or a run without a price in advance; a setting that is not a plain
            finite value, that repeats a mechanism setting, or that bears the name of a
            restricted field.
    """
    plan = tuple(plan)
    counted = [group.noisy_count is not None for group in plan]
    if not plan or any(counted) != all(counted) or any(counted) != (noisy_counts_rho > 0):
        raise ValueError(
            f'Expected noisy counts for every group and their cost, or neither, got groups={len(plan)}, '
            f'groups with a noisy count={sum(counted)}, noisy_counts_rho={noisy_counts_rho!r}. Pass the '
            'plan and the cost that the accountant charged.'
        )
    kept = [
        (cells.label, index)
        for cells in (() if clusters is None else clusters.center_counts)
        for index in cells.kept
    ]
    if [(group.label, group.cluster) for group in plan if clusters or group.cluster is not None] != kept:
        raise ValueError(
            'Expected one group for each centre that a label keeps, in their order, or no cluster at all, '
            f'got groups={len(plan)}, kept centres={len(kept)}. Pass the plan and its clustering.'
        )
    mechanism = dataclasses.asdict(params)
    _check_settings(settings, mechanism)

    statement = _statement(params.is_ex_post, clusters)
    stages = _stages(params, noisy_counts_rho, clusters)
    costs = [stage.rho for stage in stages if stage.rho is not None]
    is_priced = statement == 'differential privacy'
    rho_total = math.fsum(costs) if is_priced else None
    epsilon = None if rho_total is None else accounting.epsilon_from_rho(rho_total, delta)
    units = declared_units
    source: CountSource | None = None if declared_units is None else 'declared'
    if units is None and all(counted):
        units, source = sum(group.noisy_count or 0 for group in plan), 'noisy'
    one, many = _unit_nouns(params)
    return PrivacyReport(
        run_id=run_id,
        statement=statement,
        guarantee=_guarantee(statement, epsilon, delta, math.fsum(costs), one),
        unit_of_privacy=_unit_of_privacy(params),
        epsilon=epsilon,
        delta=delta,
        epsilon_closed_form=None if rho_total is None else accounting.epsilon_closed_form(rho_total, delta),
        rho_total=rho_total,
        rho_per_private_token=accounting.rho_per_private_token(params) if is_priced else None,
        delta_relation=(
            _delta_relation(delta, units, source, many)
            if is_priced or (costs and statement == 'ex-post')
            else f'δ = {format_exact(delta)} was set by the curator. No figure of this report goes with it.'
        ),
        units=units,
        units_source=source,
        dp_setting=_dp_setting(statement),
        data_accesses=_data_accesses(statement, ledger, one),
        mechanism_output=(
            'All tokens of all batches, in order, with where each example ends and how many of its tokens '
            'are private and public'
            + (
                '; and the noisy counts, from which the plan of batches follows.'
                if noisy_counts_rho or clusters
                else '.'
            )
        ),
        adjacency=f'Two datasets are neighbours if one is the other with one {one} added or removed.',
        accounting=_accounting(params, statement),
        stages=stages,
        sensitivities=_sensitivities(params, noisy_counts_rho, clusters),
        assumptions_enforced=_assumptions_enforced(params, noisy_counts_rho, clusters),
        assumptions_of_curator=_assumptions_of_curator(params, declared_units, clusters, ledger),
        limits=_limits(params, statement),
        plan=plan,
        clusters=clusters,
        ledger=ledger,
        corpus=corpus,
        mechanism=mechanism,
        settings=dict(settings),
        versions=dict(versions),
        reproduction=_reproduction(params, statement, delta, noisy_counts_rho, clusters),
    )


class LabelTotals(typing.NamedTuple):
    """The plan of one label, its clusters taken together.

    Attributes:
        label: The declared label; None where the run declares none.
        groups: Its groups: 1, or its clusters.
        batches: Their planned batches.
        noisy_count: Sum of their noisy counts; None where the settings gave the batches.
    """

    label: str | None
    groups: int
    batches: int
    noisy_count: int | None


def totals_by_label(plan: Sequence[GroupPlan]) -> tuple[LabelTotals, ...]:
    """The plan summed over clusters, in the order of the labels."""
    groups: dict[str | None, list[GroupPlan]] = {}
    for group in plan:
        groups.setdefault(group.label, []).append(group)
    return tuple(
        LabelTotals(
            label,
            len(members),
            sum(group.batches for group in members),
            None
            if any(group.noisy_count is None for group in members)
            else sum(group.noisy_count or 0 for group in members),
        )
        for label, members in groups.items()
    )


def format_up(value: float, digits: int = 3) -> str:
    """`value` at so many significant digits, rounded upwards: a bound that is shown still holds.

    >>> format_up(2.9301), format_up(0.1709), format_up(8.0)
    ('2.94', '0.171', '8')
    """
    # 1 part in 10¹² of slack, or the binary form of 0.3 would show as 0.301.
    exact = decimal.Decimal(value) * (1 - decimal.Decimal('1e-12'))
    return _plain(exact, decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING))


def format_down(value: float, digits: int = 3) -> str:
    """`value` at so many significant digits, rounded downwards: what is left is no more than shown.

    >>> format_down(2.9399), format_down(0.3), format_down(0.0)
    ('2.93', '0.3', '0')
    """
    exact = decimal.Decimal(value) * (1 + decimal.Decimal('1e-12'))
    return _plain(exact, decimal.Context(prec=digits, rounding=decimal.ROUND_FLOOR))


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


def _statement(is_ex_post: bool, clusters: Clusters | None) -> Statement:
    if clusters is not None and clusters.source == 'k-means':
        return 'none'
    return 'ex-post' if is_ex_post else 'differential privacy'


def _guarantee(statement: Statement, epsilon: float | None, delta: float, counts_rho: float, one: str) -> str:
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


def _dp_setting(statement: Statement) -> str:
    if statement == 'none':
        return 'None: a comparison by a curator who may see the records, and whose output stays there.'
    what = 'guarantee' if statement == 'differential privacy' else 'statement'
    return (
        'Central differential privacy with a trusted curator: the curator holds the records, runs the '
        f'job and publishes its output. The {what} is about what readers of that output can learn.'
    )


def _data_accesses(statement: Statement, ledger: LedgerEntry | None, one: str) -> tuple[str, ...]:
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
        f'{_TOGETHER}{_cumulative_guarantee(ledger, one)}',
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


def _accounting(params: MechanismParams, statement: Statement) -> str:
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
            'another, so a change may replace the content of a context, and '
            + (
                'losses are computed for that.'
                if params.is_ex_post
                else 'both sensitivities of decoding double.'
            )
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


def _stages(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[RhoStage, ...]:
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


def _sensitivities(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[Sensitivity, ...]:
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


def _assumptions_enforced(
    params: MechanismParams, noisy_counts_rho: float, clusters: Clusters | None
) -> tuple[str, ...]:
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
        f'Batches are disjoint: which batch a {_unit_nouns(params)[0]} joins is a keyed hash of its own '
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


def _assumptions_of_curator(
    params: MechanismParams,
    declared_units: int | None,
    clusters: Clusters | None,
    ledger: LedgerEntry | None,
) -> tuple[str, ...]:
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
        rows.append(f'The declared number of {_unit_nouns(params)[1]} is public.')
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


def _limits(params: MechanismParams, statement: Statement) -> tuple[str, ...]:
    one = _unit_nouns(params)[0]
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


def _reproduction(
    params: MechanismParams,
    statement: Statement,
    delta: float,
    noisy_counts_rho: float,
    clusters: Clusters | None,
) -> str:
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


def _check_settings(settings: Mapping[str, Setting], mechanism: Mapping[str, Setting]) -> None:
    restricted = {
        field.name
        for cls in (RestrictedReport, GroupContexts, ExPostLosses, BatchEpsilon)
        for field in dataclasses.fields(cls)
    } - {'run_id'}
    for name, value in settings.items():
        if name in restricted:
            raise ValueError(
                f'Expected public settings, got name={name!r}, a restricted field. Leave it out.'
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


def _to_json(report: 'PrivacyReport | RestrictedReport', schema: str) -> str:
    header = {'schema': schema, 'schema_version': SCHEMA_VERSION, 'audience': report.audience}
    text = json.dumps(header | dataclasses.asdict(report), indent=2, ensure_ascii=False, allow_nan=False)
    # A list of counts takes one line. No string is touched: none holds a bare line break.
    return _COUNTS.sub(lambda match: ' '.join(match[0].split()), text) + '\n'


_COUNTS = re.compile(r'(?<=\[)\n\s+-?\d+(?:,\n\s+-?\d+)*\n\s+(?=\])')


def _from_json[T: PrivacyReport | RestrictedReport](cls: type[T], text: str, schema: str) -> T:
    data = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    audience = data.pop('audience', None) if isinstance(data, dict) else None
    for name, expected in {'schema': schema, 'schema_version': SCHEMA_VERSION}.items():
        found = data.pop(name, None) if isinstance(data, dict) else None
        if found != expected:
            raise ValueError(
                f'Expected {name}={expected!r}, got {name}={found!r}. Read it with the version that wrote it.'
            )
    report: T = _decode(cls, data, cls.__name__)
    if audience != report.audience:
        raise ValueError(
            f'Expected audience={report.audience!r}, got audience={audience!r}. Do not edit reports by hand.'
        )
    return report


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
            if dataclasses.is_dataclass(option) and isinstance(value, dict):
                return _decode(option, value, path)
    elif _matches(expected, value):
        return value
    raise ValueError(
        f'Expected {path} to be {expected}, got type={type(value).__name__}. Do not edit reports by hand.'
    )


def _matches(expected: Any, value: Any) -> bool:
    if typing.get_origin(expected) is Literal:
        return value in typing.get_args(expected)
    return type(value) is expected or (expected is float and type(value) is int)
