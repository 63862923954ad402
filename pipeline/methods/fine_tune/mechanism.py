"""The mechanism of a run, as its settings or the card of its adapter give it, and its texts."""

from models.decoders import device
from models.finetuning import label_mix
from models.privacy import accounting, counts
from models.privacy.gradients import TuningParams
from pipeline.methods.fine_tune.settings import FineTuneSettings
from pipeline.settings.job_config import JobConfig

type Config = JobConfig[FineTuneSettings]

# Of its stage, as a ledger names it; counts of labels are noisy counts as those of any run are.
STAGE = 'fine-tuning'


def params(config: Config) -> TuningParams:
    """The mechanism, with the noise multiplier solved for where epsilon was given.

    Raises:
        ValueError: A setting out of range, or an epsilon that no noise gives.
    """
    if config.method.adapter is not None:
        from pipeline.methods.fine_tune import released

        return released.read_card(config.method.adapter).mechanism
    return config.method.mechanism(config.input, config.budget, config.resolved_delta)


def cost(params: TuningParams) -> dict[str, accounting.DpEvent]:
    """Event of each stage, by the name that a ledger has for it; together they are `TuningParams.event`."""
    of_steps: dict[str, accounting.DpEvent] = {STAGE: params.event_of_steps}
    if params.label_mix_rho is None:
        return of_steps
    counted = accounting.DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(params.label_mix_rho))
    return {'noisy_counts': counted, **of_steps}


def units_together(config: Config) -> int:
    """Units whose gradients are computed together; the machine that launches a run decides on the default.

    It is an accelerator's where the engine is asked for one, or this machine has a plugin for one. The
    adapter is the same but for rounding.
    """
    accelerated = config.runner.accelerator is not None or device.has_plugin()
    return config.method.units_together(on_accelerator=accelerated)


def texts_of_labels(config: Config) -> tuple[int, ...]:
    """Texts to sample of each label, in their declared order.

    Raises:
        ValueError: The mix has other labels than were declared.
    """
    counts = None
    if config.method.adapter is not None:
        from pipeline.methods.fine_tune import released

        counts = released.released_counts(config.method)
    return config.method.texts_of_labels(config.input, counts)


def batches_of_texts(config: Config) -> tuple[int, ...]:
    """Batches of `texts_of_labels`; with a noisy mix what is expected before it is known."""
    return label_mix.batches_of_texts(texts_of_labels(config), config.method.resolved_micro_batch_size)
