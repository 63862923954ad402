"""The report that anyone may read: `PrivacyReport`.

A run makes one of two kinds of statement, and its report names the kind first: (epsilon, delta) in
advance; or, for the median, a loss that is known afterwards, and only to the curator (METHOD 5).

Sources: PP = Amin et al. 2024; CKS = Canonne, Kamath and Steinke 2020.
"""

import dataclasses
import math
from collections.abc import Mapping

from models.privacy import earlier_release
from models.privacy.earlier_release import EarlierRelease
from models.privacy.events import DpEvent
from models.privacy.facts import RhoStage, SampledGaussianStage, Sensitivity, Setting, Statement
from models.privacy.numbers import format_exact, format_up
from models.privacy.public_numbers import Unit
from models.privacy.report import codec, earlier_releases, figures, ledger, prediction, text_votes, tuning
from models.privacy.report.groups import Cells, Clusters, CountSource, GroupPlan
from models.privacy.report.ledger import GaussianLedgerEntry, LedgerEntry, MixedLedgerEntry
from models.privacy.report.totals import ChosenTotals, CorpusTotals, StructuredTotals, TunedTotals

PRIVACY_REPORT_SCHEMA = 'dp-corpus/privacy-report'
RELEASABLE = 'Anyone may read this report.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyReport:
    """The releasable report of one run. Every field is public (METHOD 8).

    Attributes:
        run_id: Public name of the run.
        statement: 'differential privacy': (epsilon, delta), known in advance. 'ex-post': the
            loss of the text is a function of the records and of the text itself, is
            held by the curator and stands nowhere in this report.
        guarantee: The formal statement in words, numbers rounded upwards.
        unit_of_privacy: Whose presence is hidden, in words.
        epsilon: At `delta`, of the run and of all releases that went into it, as far as they hide the same
            unit; None, like the next three costs, unless the statement is 'differential privacy'.
        epsilon_of_run: Of the run alone, given what went in: by the optimal-α bound (PP Theorem 1; CKS
            Corollary 13), of votes on texts by the Gaussian that dominates them where that is less, and of
            fine-tuning by its privacy loss distribution, which has neither of the next two. The same as
            `epsilon` where nothing went in.
        delta: As set by whoever ran the job.
        epsilon_closed_form: ρ + √(4ρ log(1/δ)), the weaker bound, for comparison; where its order lies
            above `omega`, what that order gives instead.
        rho_total: zCDP cost of the whole run: the sum over `stages`.
        omega: Largest Rényi order at which `rho_total` is a bound, the least of the stages'; None where
            it is one at every order, or None itself.
        order: The order at which it becomes epsilon, the best up to `omega`; None where that is.
        rho_per_private_token: What one more private token per batch would cost; None where
            that is not known in advance, bounds nothing, or is paid by each context for itself.
        delta_relation: How delta compares with the number of units.
        units: The public number of units that delta is compared with; None without one.
        units_source: Whether `units` was declared or is the sum of the noisy counts;
            the true number is never used.
        dp_setting: Who is trusted.
        data_accesses: What the guarantee covers and what it does not: first this run, then with
            a ledger all runs together, then what is not covered.
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
        cells: Which values of declared fields examples are given, by noisy counts; None where they are
            given none.
        ledger: The runs on the same records so far, this one included; None where the run
            was charged to no ledger, as one without a price in advance never is.
        releases: All releases that went in, each once: those that the run was given, and what went into
            these.
        reads_records: Whether the run read records. One that sampled from an adapter adds no cost: its
            stages are those of the run that trained it, the first of `releases`.
        commitment: To the run key: a public value that tells this release from all others. None where a
            report is built without a run.
        corpus: Totals of the output.
        mechanism: Every field of `MechanismParams`, of `TuningParams` or of `TextVoteParams`.
        settings: Every other public setting of the run.
        versions: Software and model versions.
        reproduction: A few lines of Python that print rho and epsilon again (ex-post: those
            of the noisy counts); empty where no figure is stated.

    A whole sample, as YAML (`to_json` writes the same keys in the same order)::

        schema: dp-corpus/privacy-report
        schema_version: 6
        audience: Anyone may read this report.
        run_id: visits-2025-06
        statement: differential privacy
        guarantee: 'The corpus and this report are (ε = 3.88, δ = 1e-6)-differentially private under
          adding or removing any one record: no set of outputs becomes more than e^3.88 times as likely,
          plus 1e-6.'
        unit_of_privacy: 'One record: one row of the input, which is one context of its own.'
        epsilon: 3.8714263862773612
        epsilon_of_run: 3.8714263862773612
        delta: 1.0e-06
        epsilon_closed_form: 4.319658514473728
        rho_total: 0.29335063437139564
        omega: null
        order: null
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
          all of them in place of the sum: ε = 8 at this δ. The ledger starts no run past
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
          omega: null
        - name: Private tokens
          rho: 0.05767012687427912
          explanation: Sampling at most r private tokens per batch from the clipped average of its
            private logits.
          formula: r · ½·(c/(s·τ))²
          numbers: 300 · ½·(10/(255·2))²
          omega: null
        - name: Sparse-vector test
          rho: 0.2306805074971165
          explanation: Deciding before each token whether a public one will do; paid once per private
            token.
          formula: r · 2·(1/(s·σ))²
          numbers: 300 · 2·(1/(255·0.2))²
          omega: null
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
        - 'Text is made of tokens whose public logit is at least the K-th largest of those that may come,
          K = 1024, and of at most 1280 of them, of equal ones the first in the vocabulary: a function
          of public values alone. Each private prompt votes on these tokens alone, recentred over them.'
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
          words: null
          cluster: null
          batches: 2
          noisy_count: 493
        - label: dermatology
          words: null
          cluster: null
          batches: 3
          noisy_count: 771
        clusters: null
        cells: null
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
          rho_bound: 1.0523580045569878
          epsilon_bound: 8.0
        releases: []
        reads_records: true
        commitment: null
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
          accounting: worst-case
          shift_bound: null
          context_budget: null
          omega: null
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
    epsilon_of_run: float | None
    delta: float
    epsilon_closed_form: float | None
    rho_total: float | None
    omega: float | None
    order: float | None
    rho_per_private_token: float | None
    delta_relation: str
    units: int | None
    units_source: CountSource | None
    dp_setting: str
    data_accesses: tuple[str, ...]
    mechanism_output: str
    adjacency: str
    accounting: str
    stages: tuple[RhoStage | SampledGaussianStage, ...]
    sensitivities: tuple[Sensitivity, ...]
    assumptions_enforced: tuple[str, ...]
    assumptions_of_curator: tuple[str, ...]
    limits: tuple[str, ...]
    plan: tuple[GroupPlan, ...]
    clusters: Clusters | None
    cells: Cells | None
    ledger: LedgerEntry | MixedLedgerEntry | GaussianLedgerEntry | None
    releases: tuple[EarlierRelease, ...]
    reads_records: bool
    commitment: str | None
    corpus: CorpusTotals | StructuredTotals | TunedTotals | ChosenTotals
    mechanism: Mapping[str, Setting]
    settings: Mapping[str, Setting]
    versions: Mapping[str, str]
    reproduction: str

    def __post_init__(self) -> None:
        self._check_figures()
        self._check_together()

    def _check_figures(self) -> None:
        if tuning.is_of_tuning(self.mechanism):
            of_zcdp = (self.rho_total, self.epsilon_closed_form, self.rho_per_private_token, self.omega)
            tuning.check(
                self.mechanism,
                epsilon=self.epsilon_of_run if self.statement == 'differential privacy' else None,
                delta=self.delta,
                stages=self.stages,
                without=(*of_zcdp, self.order),
                ledger=self.ledger,
            )
            return
        if text_votes.is_of_text_votes(self.mechanism):
            text_votes.check(self.mechanism, stages=self.stages, omega=self.omega)
        costs = [stage.rho for stage in self.stages]
        expected = self._expected_statement()
        totals = [self.epsilon, self.epsilon_of_run, self.epsilon_closed_form, self.rho_total]
        if prediction.expects_price_per_token(self.mechanism) or self.rho_per_private_token is not None:
            totals.append(self.rho_per_private_token)  # other methods need have no such price
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
        ledger.check_charge(self.ledger, self.rho_total)
        if self.rho_total is not None and self.epsilon_of_run is not None:
            figures.check(
                self.stages,
                rho_total=self.rho_total,
                omega=self.omega,
                order=self.order,
                epsilon=self.epsilon_of_run,
                delta=self.delta,
                costs=self.costs,
            )

    def _check_together(self) -> None:
        earlier_releases.check(self.releases)
        if len({release.identity for release in self.releases}) < len(self.releases):
            raise ValueError(
                'Expected each release that went in once, got one twice. Do not edit the report.'
            )
        trained = self.releases[:1]
        # A card may come from another machine, whose last digits differ.
        if not self.reads_records and not (
            trained and math.isclose(trained[0].epsilon, self.epsilon_of_run or 0.0, rel_tol=1e-6)
        ):
            raise ValueError(
                'Expected the run that trained the adapter first among the releases that went in, got '
                f'epsilon_of_run={self.epsilon_of_run!r} without it. Build the report with '
                'build_privacy_report and do not edit it.'
            )
        if self.epsilon is None or self.epsilon_of_run is None:
            return
        computed = earlier_releases.epsilon_with(self.epsilon_of_run, self.costs, self.counted, self.delta)
        costs = [*self.costs.values(), *(event for of in self.counted for event in of.costs.values())]
        if not earlier_releases.follows(self.epsilon, computed, costs, self.delta):
            raise ValueError(
                'Expected epsilon to be that of the run and of all releases that went in, got '
                f'epsilon={self.epsilon!r}, computed={computed!r}. Build the report with '
                'build_privacy_report and do not edit it.'
            )

    @property
    def costs(self) -> dict[str, DpEvent]:
        """What the stages cost, by name.

        Raises:
            ValueError: One has no price in advance.
        """
        return earlier_releases.costs_of(self.mechanism, self.stages)

    @property
    def further(self) -> tuple[EarlierRelease, ...]:
        """The releases whose costs are not those of the stages: all, but for the adapter of a mere sample."""
        return self.releases if self.reads_records else self.releases[1:]

    @property
    def counted(self) -> tuple[EarlierRelease, ...]:
        """Those of `further` that `epsilon` counts: of the same unit of privacy."""
        return earlier_releases.counted(self.further, self.unit)

    @property
    def unit(self) -> Unit:
        """Whose presence the run hides."""
        return prediction.unit_of(self.mechanism)

    @property
    def charged_dataset(self) -> str | None:
        """Name of the records in the ledger that charged what the stages cost; None where none did."""
        if not self.reads_records:
            return self.releases[0].dataset
        return None if self.ledger is None else self.ledger.dataset

    def handed_on(self, digest: str) -> tuple[EarlierRelease, ...]:
        """This release and all that went into it, for a run that it goes into.

        Args:
            digest: SHA-256 of the report's file, in hexadecimal.

        Raises:
            ValueError: It states no (epsilon, delta).
        """
        if not self.reads_records:
            trained, *further = self.releases
            return dataclasses.replace(trained, sampled_by=self.run_id), *further
        if self.epsilon_of_run is None:
            raise ValueError(f'Expected a report with an epsilon, got statement={self.statement!r}.')
        own = EarlierRelease(
            run_id=self.run_id,
            method=earlier_releases.method_of(self.mechanism),
            unit=self.unit,
            epsilon=self.epsilon_of_run,
            delta=self.delta,
            costs=self.costs,
            dataset=None if self.ledger is None else self.ledger.dataset,
            run_number=None if self.ledger is None else self.ledger.run_number,
            charged_rho=None if self.ledger is None else self.ledger.rho,
            identity=self.commitment or digest,
            told_by='report',
            inputs_known=True,
        )
        return earlier_release.handed_on(own, self.releases)

    @property
    def audience(self) -> str:
        """Who may read the report, in a sentence."""
        return RELEASABLE

    @property
    def unit_noun(self) -> str:
        """The unit of privacy as a noun: 'user' or 'record'."""
        return prediction.unit_nouns(self.mechanism.get('unit'))[0]

    @property
    def has_texts(self) -> bool:
        """Whether the run wrote a corpus: one that trains an adapter alone plans no batch of texts."""
        return any(group.batches for group in self.plan)

    @property
    def orders(self) -> str | None:
        """The Rényi orders at which the cost is a bound, and the one that was used; None without a limit."""
        if self.omega is None or self.order is None or self.rho_total is None:
            return None
        return (
            f'Truncated zCDP: the cost of ρ = {format_up(self.rho_total)} is a bound at Rényi orders up to '
            f'ω = {format_exact(self.omega)}, and gives ε at the order α = {self.order:.6g}.'
        )

    @property
    def covered_together(self) -> str | None:
        """The guarantee for all runs on the same records up to this one; None without a ledger."""
        if self.ledger is None:
            return None
        sentence = ledger.guarantee_of_all_runs(self.ledger, self.unit_noun)
        return sentence[0].upper() + sentence[1:]

    @property
    def covered_with_releases(self) -> str | None:
        """The guarantee for the run and all that went into it; None where nothing did."""
        if self.epsilon is None or not self.counted:
            return None
        return earlier_releases.covered_together(
            self.counted,
            self.epsilon,
            self.delta,
            self.ledger,
            self.unit_noun,
            run=self.run_in_words,
        )

    @property
    def run_in_words(self) -> str:
        """The run that the stages are of."""
        return 'this run' if self.reads_records else f'the run {self.releases[0].run_id!r}'

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The accesses of `data_accesses` that no figure of this report covers."""
        return tuple(row for row in self.data_accesses if row.startswith('Not covered'))

    def _expected_statement(self) -> Statement:
        return 'differential privacy' if prediction.has_price_in_advance(self.mechanism) else 'ex-post'

    def to_json(self) -> str:
        """The report as JSON text, keys in the order of the fields, newline at the end."""
        return codec.to_json(self, PRIVACY_REPORT_SCHEMA)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyReport':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: Not JSON, another schema or version, an unknown, missing or
                repeated key, a value of another type, or numbers that contradict
                one another.
        """
        return codec.from_json(cls, text, PRIVACY_REPORT_SCHEMA)
