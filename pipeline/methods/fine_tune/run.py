"""A fine-tuning run, solved: its mechanism, as settings or an adapter's card give it, and its texts."""

import dataclasses
import typing

import numpy as np

from models.batch_plan import BatchPlan
from models.decoders import device
from models.finetuning import label_mix
from models.finetuning.adapter import AdapterCard
from models.finetuning.units import LENGTHS_ON_ACCELERATOR, LENGTHS_ON_PROCESSOR, padded_lengths
from models.privacy import accounting, counts
from models.privacy.gradients import TuningParams
from models.speed import Work
from pipeline.methods import follows
from pipeline.methods.fine_tune.settings import FineTuneSettings
from pipeline.methods.solved import Begun, Run, RunFolders
from pipeline.settings.job_config import JobConfig
from transforms.run_files import ADAPTER_FOLDER, TUNING_FOLDER

if typing.TYPE_CHECKING:
    from transforms.columns import Columns

type Config = JobConfig[FineTuneSettings]

# The stage of a ledger; counts of labels are noisy counts as those of any run are.
STAGE = 'fine-tuning'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningRun(Run[FineTuneSettings]):
    """A run that trains an adapter, or samples from a released one.

    Attributes:
        card: The card of the adapter that it samples from; None where it trains one.
        texts_of_labels: Texts to sample of each label, in their declared order; with a noisy mix what is
            expected before it is known.
        units_together: Units whose gradients are computed together. The machine that launches a run decides
            on the default, an accelerator's where the engine is asked for one or this machine has a plugin
            for one. The adapter is the same but for rounding.
        text_lengths: Lengths that texts are padded to there.
    """

    params: TuningParams
    card: AdapterCard | None
    texts_of_labels: tuple[int, ...]
    units_together: int
    text_lengths: int

    @property
    def lora_rank(self) -> int | None:
        """Rank of the adapter; None for a difference of all weights."""
        return self.method.rank if self.card is None else self.card.lora_rank

    @property
    def tokens(self) -> dict[Work, int]:
        settings, texts, trained, decoded = self.method, sum(self.texts_of_labels), 0, 0
        # A typical text where its words are declared, else one up to the cap.
        length = (
            settings.max_example_tokens
            if settings.typical_words is None
            else follows.typical_tokens(settings)
        )
        if self.card is None:
            padded = int(
                padded_lengths(np.array([length]), settings.max_example_tokens, self.text_lengths)[0]
            )
            steps = settings.free_steps + self.params.tuning_steps
            of_step = settings.expected_batch_size * self.budget.examples_per_context * padded
            # In the mean over steps, of which only some have wrong instructions.
            trained = round(steps * of_step * (1 + self.wrong_prompts / settings.mismatch_every))
        if texts:
            # The instruction of a label is read once.
            decoded = texts * length + len(self.input.label_values) * settings.max_prompt_tokens
        return {'training': trained, 'decoding': decoded}

    @property
    def wrong_prompts(self) -> int:
        """Wrong instructions of each unit, at the steps that have some."""
        settings = self.method
        return (
            min(settings.wrong_prompts, len(self.input.label_values) - 1) if settings.mismatch_weight else 0
        )

    @property
    def own_columns(self) -> 'Columns':
        from transforms import finetune

        return finetune.COLUMNS


def solve(config: Config) -> TuningRun:
    """The run of a config."""
    card = None
    if config.method.adapter is not None:
        from pipeline.methods.fine_tune import released

        config, card = released.with_adapter(config)
    settings = config.method
    params = settings.mechanism(config.input, config.budget, config.delta) if card is None else card.mechanism
    # A mix that was given comes before the one that the adapter was released with.
    label_counts = None if card is None or settings.label_mix else card.label_counts
    texts = settings.texts_of_labels(config.input, label_counts)
    accelerated = config.runner.accelerator is not None or device.has_plugin()
    return TuningRun(
        config=config,
        statement='differential privacy',
        stages=stages(params),
        batch_plan=_batch_plan(config, params, texts, label_counts),
        most_tokens=sum(texts) * settings.max_example_tokens,
        folders=RunFolders()
        if card is not None
        else RunFolders(work=(TUNING_FOLDER,), output=(ADAPTER_FOLDER,)),
        begun=tuple(_begun(settings)),
        params=params,
        card=card,
        texts_of_labels=texts,
        units_together=settings.units_together(on_accelerator=accelerated),
        text_lengths=LENGTHS_ON_ACCELERATOR if accelerated else LENGTHS_ON_PROCESSOR,
    )


def stages(params: TuningParams) -> dict[str, accounting.DpEvent]:
    """Event of each stage, by the name that a ledger has for it; together they are `TuningParams.event`."""
    of_steps: dict[str, accounting.DpEvent] = {STAGE: params.event_of_steps}
    if params.label_mix_rho is None:
        return of_steps
    counted = accounting.DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(params.label_mix_rho))
    return {'noisy_counts': counted, **of_steps}


def _batch_plan(
    config: Config, params: TuningParams, texts: tuple[int, ...], label_counts: tuple[int, ...] | None
) -> BatchPlan | None:
    """The plan of batches of texts; None where the mix of labels is counted first."""
    settings = config.method
    if settings.label_mix_rho is not None:
        return None
    rho = None if label_counts is None else params.label_mix_rho
    return BatchPlan(
        labels=config.input.label_values,
        batches_per_group=label_mix.batches_of_texts(texts, settings.rows_together),
        noisy_counts=label_counts,
        contexts_rho=rho or 0.0,
    )


def _begun(settings: FineTuneSettings) -> typing.Iterator[Begun]:
    if settings.warm_start is not None:
        yield Begun(name='warm_start', place=settings.warm_start, what='a corpus')
