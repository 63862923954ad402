"""A report's facts of DP fine-tuning: an adapter is trained on the records, and texts are sampled from it.

AB = Abadi et al. 2016, "Deep learning with differential privacy".
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import ClassVar, Literal

from models.privacy import counts
from models.privacy.earlier_release import GivenTexts
from models.privacy.events import DpEvent
from models.privacy.facts import Facts, SampledGaussianStage, Sensitivity
from models.privacy.gradients import TuningParams
from models.privacy.report.method import MethodFacts

STAGE = 'Fine-tuning'


@typing.final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned(MethodFacts):
    """DP fine-tuning. All of it is public.

    Attributes:
        kind: Name of the method in reports.
        mechanism: Every number that its guarantee depends on.
        releases: All releases that went in, each once: those that the run was given, and what went into
            these.
        trains: Whether the run trained the adapter. One that only samples from an adapter has the cost of the
            run that trained it, which is the first of `releases`.
        writes_texts: Whether the run sampled texts.
        label_mix: Whether the labels' shares of the texts were given, or follow from noisy counts; None where
            the run needs none.
        warm_start: The texts that the adapter was trained on before its first private step; None without.
        has_structure: Whether the texts have a structure.
    """

    did: ClassVar[str] = 'fine-tuning'

    kind: Literal['tuned'] = 'tuned'
    mechanism: TuningParams
    trains: bool = True
    writes_texts: bool = True
    label_mix: Literal['given', 'counted'] | None = None
    warm_start: GivenTexts | None = None
    has_structure: bool = False

    @property
    def reads_records(self) -> bool:
        return self.trains

    @property
    def counts_groups(self) -> bool:
        # A run that samples from an adapter has the counts that its training released.
        return self.mechanism.label_mix_rho is not None and self.label_mix != 'given'

    @property
    def costs(self) -> Mapping[str, DpEvent]:
        return {STAGE: self.mechanism.event}

    @property
    def parts(self) -> tuple[Facts, ...]:
        params = self.mechanism
        q, z, steps = params.sampling_probability, params.noise_multiplier, params.tuning_steps
        many = 'users' if params.unit == 'user' else 'records'
        trained = SampledGaussianStage(
            name=STAGE,
            rho=None,
            explanation=(
                f'{steps:,} noisy sums of the clipped gradients of the {many} of a step, which train the '
                'adapter.'
            ),
            formula='T × Gaussian(z) on a Poisson sample (q)',
            numbers=f'{steps:,} × Gaussian({z:g}) on a Poisson sample ({q:.6g})',
            sampling_probability=q,
            noise_multiplier=z,
            steps=steps,
        )
        gradient = Sensitivity(
            quantity='The sum of the gradients of a step (L2)', value=params.clip_norm, formula='C'
        )
        of_steps = Facts(stages=(trained,), sensitivities=(gradient,))
        if params.label_mix_rho is None:
            return (of_steps,)
        counted = counts.facts(
            params.label_mix_rho,
            stage='Noisy counts',
            cells='label',
            use='from which the mix of labels follows',
            variable='noisy_counts',
        )
        return counted, of_steps
