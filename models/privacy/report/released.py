"""The report that anyone may read: `PrivacyReport`.

A run makes one of two kinds of statement, and its report names the kind first: (epsilon, delta) in
advance; or, for the median, a loss that is known afterwards, and only to the curator (METHOD 5).

Sources: PP = Amin et al. 2024; CKS = Canonne, Kamath and Steinke 2020.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from models.privacy import accounting, codec, earlier_release
from models.privacy.accounting import subsampled
from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import RhoStage, SampledGaussianStage, Sensitivity, Setting, Statement
from models.privacy.public_numbers import Unit
from models.privacy.report import composition, ledger
from models.privacy.report.groups import CountSource, GroupPlan
from models.privacy.report.ledger import GaussianLedgerEntry, LedgerEntry, MixedLedgerEntry
from models.privacy.report.predicted import Predicted
from models.privacy.report.totals import ChosenTotals, CorpusTotals, StructuredTotals, TunedTotals
from models.privacy.report.tuned import Tuned
from models.privacy.report.tuned_voted import TunedVoted
from models.privacy.report.voted import Voted

# Methods of a run, by tag.
Described = Annotated[Predicted | Tuned | Voted | TunedVoted, codec.Tagged('kind')]
RELEASABLE: Final = 'Anyone may read this report.'
# Fields with sentences, which `models.privacy.report.words` writes.
SENTENCES = (
    'guarantee', 'unit_of_privacy', 'delta_relation', 'dp_setting', 'mechanism_output', 'adjacency',
    'accounting',
)  # fmt: skip
LISTS = ('data_accesses', 'assumptions_enforced', 'assumptions_of_curator', 'limits')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyReport:
    """The releasable report of one run. Every field is public (METHOD 8).

    Attributes:
        schema: What kind of document this is.
        schema_version: Changes with every change that a reader has to know of.
        audience: Who may read it.
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
        sample_rate: Probability with which each unit was taken.
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
        ledger: The runs on the same records so far, this one included; None where the run
            was charged to no ledger, as one without a price in advance never is.
        commitment: To the run key: a public value that tells this release from all others. None where a
            report is built without a run.
        corpus: Totals of the output.
        method: What the run did with the records, with every number that its guarantee depends on.
        settings: Every other public setting of the run.
        versions: Software and model versions.
        reproduction: A few lines of Python that print rho and epsilon again (ex-post: those
            of the noisy counts); empty where no figure is stated.
    """

    __pydantic_config__: ClassVar[Any] = codec.STRICT

    schema: Literal['dp-corpus/privacy-report'] = 'dp-corpus/privacy-report'
    schema_version: Literal[8] = 8
    audience: Literal['Anyone may read this report.'] = RELEASABLE
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
    sample_rate: float
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
    ledger: LedgerEntry | MixedLedgerEntry | GaussianLedgerEntry | None
    commitment: str | None
    corpus: CorpusTotals | StructuredTotals | TunedTotals | ChosenTotals
    method: Described
    settings: Mapping[str, Setting]
    versions: Mapping[str, str]
    reproduction: str

    def __post_init__(self) -> None:
        for name, value in self.method.figures(self.delta).items():
            stated = getattr(self, name)
            if not self._is_same(stated, value):
                raise ValueError(
                    f'Expected {name} to follow from the mechanism, delta and what went in, got '
                    f'{name}={stated!r}, computed={value!r}. Build the report with build_privacy_report '
                    'and do not edit it.'
                )
        composition.check(self.releases)
        trained = self.releases[:1]
        # A card may come from another machine, whose last digits differ.
        if not self.reads_records and not (
            trained and self._is_same(trained[0].epsilon, self.epsilon_of_run)
        ):
            raise ValueError(
                'Expected the run that trained the adapter first among the releases that went in, got '
                f'epsilon_of_run={self.epsilon_of_run!r} without it. Build the report with '
                'build_privacy_report and do not edit it.'
            )
        if self.ledger is not None:
            ledger.check_charge(self.ledger, self.method.costs.values())

    def _is_same(self, stated: Any, computed: Any) -> bool:
        """True if a figure is the one computed here, but for the last digits of another machine."""
        if isinstance(computed, float) and isinstance(stated, float):
            costs = [self.method.costs, *(release.costs for release in self.counted)]
            if any(accounting.curve_of(event).sampled for of_run in costs for event in of_run.values()):
                return subsampled.is_same(stated, computed)
            return math.isclose(stated, computed, rel_tol=1e-6)
        if isinstance(computed, tuple) and isinstance(stated, tuple):
            return len(stated) == len(computed) and all(map(_states_the_same, stated, computed))
        return bool(stated == computed)

    @property
    def releases(self) -> tuple[EarlierRelease, ...]:
        """All releases that went in, each once."""
        return self.method.releases

    @property
    def reads_records(self) -> bool:
        """True if the run read records."""
        return self.method.reads_records

    @property
    def counted(self) -> tuple[EarlierRelease, ...]:
        """The releases that `epsilon` counts beside the run."""
        return self.method.counted

    @property
    def unit(self) -> Unit:
        """Whose presence the run hides."""
        return self.method.unit

    @property
    def unit_noun(self) -> str:
        """The unit of privacy as a noun: 'user' or 'record'."""
        return 'user' if self.unit == 'user' else 'record'

    @property
    def charged_dataset(self) -> str | None:
        """Name of the records in the ledger that charged what the stages cost; None where none did."""
        if not self.reads_records:
            return self.releases[0].dataset
        return None if self.ledger is None else self.ledger.dataset

    @property
    def outside(self) -> tuple[EarlierRelease, ...]:
        """Those of `counted` that no sum of the run's ledger has."""
        return composition.without_ledger(self.counted, None if self.ledger is None else self.ledger.dataset)

    @property
    def together(self) -> composition.Guarantee | None:
        """Epsilon of all runs of the ledger so far and of `outside`; None without a ledger."""
        if self.ledger is None:
            return None
        if self.outside:
            return composition.with_ledger(self.ledger, self.outside, self.delta)
        return composition.Guarantee(self.ledger.epsilon_after, self.ledger.delta)

    @property
    def has_noisy_counts(self) -> bool:
        """True if the sizes of the groups were counted with noise."""
        return all(group.noisy_count is not None for group in self.plan)

    @property
    def has_texts(self) -> bool:
        """True if the run wrote a corpus: one that trains an adapter alone plans no batch of texts."""
        return any(group.batches for group in self.plan)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The accesses of `data_accesses` that no figure of this report covers."""
        return tuple(row for row in self.data_accesses if row.startswith('Not covered'))

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
        release = EarlierRelease(
            run_id=self.run_id,
            method=self.method.did,
            unit=self.unit,
            epsilon=self.epsilon_of_run,
            delta=self.delta,
            costs=self.method.costs,
            dataset=None if self.ledger is None else self.ledger.dataset,
            run_number=None if self.ledger is None else self.ledger.run_number,
            charged_rho=None if self.ledger is None else self.ledger.rho,
            identity=self.commitment or digest,
            told_by='report',
        )
        return earlier_release.handed_on(release, self.releases)

    def to_json(self) -> str:
        """The report as JSON text, keys in the order of the fields, newline at the end."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyReport':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: Not JSON, another schema or version, an unknown, missing or
                repeated key, a value of another type, or numbers that contradict
                one another.
        """
        return codec.read(cls, text, 'a privacy report of this version', 'Restore it as its run wrote it')


def _states_the_same(stated: Any, computed: Any) -> bool:
    """True if two stages or sensitivities have the same numbers; sentences may differ."""
    return type(stated) is type(computed) and all(
        stated_number == number
        or (isinstance(number, float) and math.isclose(stated_number or 0.0, number, rel_tol=1e-9))
        for stated_number, number in zip(_numbers(stated), _numbers(computed), strict=True)
    )


def _numbers(row: Any) -> list[float | None]:
    values = [getattr(row, field.name) for field in dataclasses.fields(row)]
    return [value for value in values if not isinstance(value, str)]
