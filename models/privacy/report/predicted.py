"""A report's facts of private prediction: batches of records vote on tokens (METHOD 4).

PP = Amin et al. 2024.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import ClassVar, Literal

from models.privacy import accounting, counts, sparse_vector
from models.privacy.earlier_release import GivenTexts
from models.privacy.events import DpEvent, TruncatedZCDpEvent, ZCDpEvent
from models.privacy.facts import Facts, Reproduction, Statement
from models.privacy.params import MechanismParams
from models.privacy.report.groups import Cells, Clusters
from models.privacy.report.method import MethodFacts


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenReference:
    """Texts that the curator gave as the reference (METHOD 4c).

    Attributes:
        size: M, the number of texts of each label.
        digest: SHA-256 of the texts, in hexadecimal.
        texts: Where they come from.
    """

    size: int
    digest: str
    texts: GivenTexts


@typing.final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicted(MethodFacts):
    """Private prediction. All of it is public.

    Attributes:
        kind: Name of the method in reports.
        mechanism: Every number that its guarantee depends on.
        releases: All releases that went in, each once: those that the run was given, and what went into
            these.
        counts_rho: zCDP cost of the noisy counts that give the batches; 0 where the settings gave them.
        clusters: Where the groups' clusters come from; None without clusters.
        cells: Which values of declared fields examples are given, by noisy counts; None where they are given
            none.
        reference: Where the reference's texts come from: given ones, or the run's own 'first round'; None if
            the public prompt is the only public row.
        adapter: SHA-256 of the adapter that the model decodes with, in hexadecimal, which `releases[0]`
            released; None if it has none.
        has_structure: Whether the examples have a structure.
    """

    did: ClassVar[str] = 'private prediction'

    kind: Literal['predicted'] = 'predicted'
    mechanism: MechanismParams
    counts_rho: float = 0.0
    clusters: Clusters | None = None
    cells: Cells | None = None
    reference: GivenReference | Literal['first round'] | None = None
    adapter: str | None = None
    has_structure: bool = False

    @property
    def counts_groups(self) -> bool:
        return self.counts_rho > 0

    @property
    def aggregate(self) -> Facts:
        """The facts of its aggregate."""
        return self.mechanism.strategy.facts(self.mechanism)

    @property
    def histograms(self) -> tuple[Facts, ...]:
        """The facts of its noisy counts, in the order of payment."""
        histograms = []
        if self.cells is not None:
            histograms.append(
                counts.facts(
                    self.cells.counts_rho,
                    stage='Noisy counts per cell',
                    cells=f'label and values of {", ".join(self.cells.fields)}',
                    use='from which the values that examples are given follow',
                    variable='cell_counts',
                )
            )
        if self.clusters is not None:
            histograms.append(
                counts.facts(
                    self.clusters.counts_rho,
                    stage='Noisy counts per centre',
                    cells='label and centre',
                    use='from which the centres that a label keeps follow',
                    variable='center_counts',
                )
            )
        if self.counts_rho:
            histograms.append(
                counts.facts(
                    self.counts_rho,
                    stage='Noisy counts',
                    cells='label' if self.clusters is None else 'label and cluster',
                    use='from which the plan of batches follows',
                    variable='noisy_counts',
                )
            )
        return tuple(histograms)

    @property
    def decoding(self) -> tuple[Facts, ...]:
        """The facts of its aggregate and of its test."""
        if not self.mechanism.uses_sparse_vector:
            return (self.aggregate,)
        return self.aggregate, sparse_vector.facts(self.mechanism)

    @property
    def parts(self) -> tuple[Facts, ...]:
        return *self.histograms, *self.decoding

    @property
    def statement(self) -> Statement:
        return self.aggregate.statement

    @property
    def costs(self) -> Mapping[str, DpEvent]:
        if self.statement == 'ex-post':
            return {}
        return {
            stage.name: ZCDpEvent(rho=stage.rho or 0.0)
            if stage.omega is None
            else TruncatedZCDpEvent(rho=stage.rho or 0.0, omega=stage.omega)
            for stage in self.stages
        }

    @property
    def rho_per_private_token(self) -> float | None:
        if self.mechanism.is_ex_post or self.mechanism.is_individual:
            return None
        return accounting.rho_per_private_token(self.mechanism)

    @property
    def reproductions(self) -> tuple[Reproduction, ...]:
        """r times the cost of one private token, which is the sum over the parts (PP Theorem 1).

        With individual accounting one part has the cost of the whole stream (METHOD 4d).
        """
        of_counts = tuple(part.reproduction for part in self.histograms if part.reproduction is not None)
        costs = [part.reproduction for part in self.decoding if part.reproduction is not None]
        if len(costs) < len(self.decoding):
            return of_counts
        params = self.mechanism
        change = (
            f'change = {params.change.value}  # 1: a context comes or goes; 2: its content may be replaced'
        )
        if params.is_individual:
            [whole] = costs
            return dataclasses.replace(whole, settings=(*whole.settings, change)), *of_counts
        aggregate, *others = costs
        decoding = Reproduction(
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
        return decoding, *of_counts
