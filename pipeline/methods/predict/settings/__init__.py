"""All settings of private prediction, and what follows from several of them."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import ClassVar

from models.decoders import device
from models.decoders.device import Dtype, RequestedDtype
from models.privacy.aggregates import AGGREGATES
from models.privacy.params import MechanismParams
from pipeline.methods.predict.settings.cells import Cells
from pipeline.methods.predict.settings.clusters import Clusters
from pipeline.methods.predict.settings.mechanism import mechanism, unsolved
from pipeline.methods.predict.settings.reference import Reference
from pipeline.methods.predict.settings.votes import Votes
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from pipeline.settings.structure import Structured

NAME = 'predict'
_setting = functools.partial(panel.setting, 'Model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(Votes, Clusters, Reference, Cells, Structured, MethodSettings):
    """Batches of records vote on every token of a frozen model (METHOD 1 to 5)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = ('Votes', 'Clusters', 'Reference', 'Prompt', 'Structure', 'Model')
    added_help: ClassVar[Mapping[str, str]] = {
        'dtype': 'And float32 for the difference on any processor, since it is what is left of two '
        'predictions that nearly agree, and where the model embeds records for clusters.',
        'micro_batch_size': 'Default: enough for a typical batch.',
    }

    adapter: str | None = _setting(
        'Folder of a finished fine-tuning run, or of its adapter: records vote on what the model predicts '
        'with it. What it cost comes on top.',
        None,
        path='file',
    )

    def check(self) -> None:
        if self.clusters is not None and self.batches_per_label is not None:
            raise ValueError(
                f'Expected clusters or batches_per_label, got clusters={self.clusters!r}, '
                f'batches_per_label={self.batches_per_label!r}. How many batches a cluster fills is counted, '
                'with noise: leave --batches-per-label out.'
            )
        given = self.reference is not None or self.reference_rounds == 2
        if given and not AGGREGATES[self.aggregate].takes_reference:
            raise ValueError(
                f"Expected aggregate='difference' with a reference, got aggregate={self.aggregate!r}, "
                f'reference={self.reference!r}, reference_rounds={self.reference_rounds}. Only a difference '
                'is taken from one: give --aggregate difference, or leave the reference out.'
            )

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        if self.reference_label_field is not None and not declared.labels:
            raise ValueError(
                'Expected labels with reference_label_field, got '
                f'reference_label_field={self.reference_label_field!r}, labels=[]. Declare --labels, or '
                'leave it out: all texts then serve.'
            )
        self.label_attributes(declared)
        unsolved(self, budget, self.max_example_tokens)  # the mechanism checks its own settings
        _ = self.structure  # a schema checks itself

    def mechanism(self, budget: Budget, delta: float) -> MechanismParams:
        """The mechanism, with r, or B and ω, solved for where epsilon was given.

        Raises:
            ValueError: A setting out of range, or a budget that buys no private token.
        """
        return mechanism(
            self,
            budget,
            delta=delta,
            max_example_tokens=self.max_example_tokens,
            other_rho=self.other_rho,
        )

    def fastest_dtype(self) -> Dtype:
        # Centres are of one type, whatever machine embeds the records.
        embeds = self.clusters is not None and self.resolved_embedder == 'decoder'
        if embeds or (self.strategy.takes_reference and device.platform_here() == 'cpu'):
            return 'float32'
        return device.fastest_dtype()

    @property
    def planned_dtype(self) -> RequestedDtype:
        if self.dtype == 'auto' and self.strategy.takes_reference and not device.has_plugin():
            return 'float32'
        return self.dtype

    @property
    def counted_fields(self) -> tuple[str, ...]:
        return self.condition_on

    @property
    def resolved_reference_rounds(self) -> int:
        """Rounds of batches: 2 where the first one releases the reference of the others."""
        if self.reference_rounds is not None:
            return self.reference_rounds
        return 2 if AGGREGATES[self.aggregate].takes_reference and self.reference is None else 1

    @property
    def resolved_micro_batch_size(self) -> int:
        """Rows that go through the model together: equal parts, of at most 128, of a full batch.

        Public, so that the shape of a program never tells a batch's size. Hashed
        batches vary by about √s; a full one has s + 2√s contexts. Public rows are apart.
        """
        full = self.batch_size + 2 * math.isqrt(self.batch_size)
        return self.micro_batch_size or math.ceil(full / math.ceil(full / 128))

    @property
    def noisy_count_rho(self) -> float:
        """rho that the run spends on noisy counts: 0 where the batches are given."""
        if self.clusters is not None:
            return self.resolved_clustering_rho
        return self.count_rho if self.batches_per_label is None else 0.0

    @property
    def other_rho(self) -> float:
        """rho of all that the run releases beside its text."""
        return self.noisy_count_rho + self.cell_count_rho
