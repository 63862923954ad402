"""The plan of a fine-tuning run: its price and its size, before anything is read or paid."""

import dataclasses
import json
import math

from models.privacy import counts
from models.privacy.accounting import subsampled
from models.privacy.gradients import TuningParams
from models.privacy.report import words
from pipeline import calibration
from pipeline.calibration import Calibration, duration, three_digits
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.fine_tune import estimate, mechanism
from pipeline.methods.fine_tune.estimate import TuningEstimate
from pipeline.methods.fine_tune.mechanism import Config
from pipeline.methods.method import RunPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningPlan(RunPlan):
    """What a fine-tuning run would release and cost. All fields are public.

    Attributes:
        tuning_steps: T.
        expected_batch_size: s, units of a step in the mean.
        sampling_probability: q, with which each unit is in a step.
        clip_norm: C, of the gradient of a unit.
        noise_multiplier: z, as given or the least for the epsilon that was.
        lora_rank: r; None where all weights are trained.
        adapter_parameters: Numbers that are trained and released.
        epsilon: At `delta`, from the privacy loss distribution of all steps, and of the noisy counts of
            labels where there are any.
        delta: As given, or from the declared number of units.
        rho_at_order: What a ledger charges, where one was asked that keeps its budget at a Rényi order: the
            divergence there, over the order.
        label_mix_rho: rho of the noisy counts that the texts' mix of labels follows from, as of the run
            that trained the adapter; None where units are not counted.
        examples: Texts of all labels.
        trained_by: The run that trained the adapter, where one is only sampled from: nothing is charged.
        estimate: How long it would take; None where no rates were asked for.
        budget: What the ledger says of it; None where no ledger was asked.
        warnings: What to think about before the run, in sentences.
        warm_steps: Steps before the private ones, on texts that are no records; they cost nothing.
    """

    tuning_steps: int
    expected_batch_size: int
    sampling_probability: float
    clip_norm: float
    noise_multiplier: float
    lora_rank: int | None
    adapter_parameters: int
    epsilon: float
    delta: float
    rho_at_order: float | None
    label_mix_rho: float | None
    examples: int
    trained_by: str | None
    estimate: TuningEstimate | None = None
    budget: BudgetAnswer | None = None
    warnings: tuple[str, ...] = ()
    warm_steps: int = 0

    def to_json(self) -> str:
        """The plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @property
    def sampling_share(self) -> float:
        if self.estimate is None or not self.estimate.training_hours:
            return 0.0
        return self.estimate.sampling_hours / self.estimate.training_hours

    def guarantee(self) -> str:
        words = f'ε = {self.epsilon:.6g} at δ = {self.delta:.6g}'
        if self.trained_by is None:
            return words
        return f'{words}, of the run {self.trained_by}, which trained the adapter; texts are free'

    def size(self) -> str:
        texts = f'{self.examples:,} texts'
        if self.trained_by is not None:
            return texts
        steps = f'{self.tuning_steps:,} steps with noise multiplier {self.noise_multiplier:g}'
        return f'{steps}, then {texts}' if self.examples else f'{steps}, and no text yet'

    def written_texts(self) -> int:
        return self.examples

    def computing_hours(self) -> float | None:
        return None if self.estimate is None else self.estimate.training_hours + self.estimate.sampling_hours

    def rows(self) -> list[tuple[str, str]]:
        q = self.sampling_probability
        rows = [
            ('Guarantee', self.guarantee()),
            ('', 'from the privacy loss distribution of all steps (PLD), an upper bound'),
            (
                'Steps',
                f'{self.tuning_steps:,}, each of about {self.expected_batch_size:,} units, q = {q:.4g}',
            ),
            ('Noise', f'z = {self.noise_multiplier:g} clip norms, C = {self.clip_norm:g}'),
        ]
        if self.warm_steps:
            rows.append(('Warm start', f'{self.warm_steps:,} steps on texts that are no records, free'))
        if self.label_mix_rho is not None:
            scale = counts.gaussian_scale(self.label_mix_rho)
            rows.append((
                'Label mix',
                f'from noisy counts, ρ = {self.label_mix_rho:g}: discrete Gaussian noise of scale '
                f'{scale:.4g} on the number of units of each label; ε has it in it',
            ))  # fmt: skip
        trained = 'all weights' if self.lora_rank is None else f'rank {self.lora_rank}'
        rows += [
            ('Adapter', f'{trained}, {self.adapter_parameters:,} numbers'),
            ('Texts', f'{self.examples:,}, free' if self.examples else 'none; they are free later'),
        ]
        if self.estimate is not None:
            rows += self._estimate_rows(self.estimate)
        if self.budget is not None:
            rows += self.budget.rows(self.delta)
            rows.append(('', _charge_words(self.budget)))
        return rows

    def _estimate_rows(self, estimate: TuningEstimate) -> list[tuple[str, str]]:
        """The estimate, and what it rests on."""
        rows = []
        if self.trained_by is None:
            rows.append((
                'Training',
                f'about {duration(estimate.training_hours)}, '
                f'{three_digits(estimate.seconds_per_step)} s a step in {estimate.dtype}',
            ))  # fmt: skip
        if self.examples:
            rows.append(('Sampling', f'about {duration(estimate.sampling_hours)}'))
        return [
            *rows,
            ('Memory', f'about {estimate.memory_bytes / 2**30:.1f} GiB'),
            (
                'Estimated',
                f'for texts of {estimate.text_tokens:,} tokens, '
                f'{calibration.source(estimate.device, estimate.measured_on)}',
            ),
        ]


def plan_run(config: Config) -> TuningPlan:
    """The plan of a config, which alone decides it."""
    card = None
    if config.method.adapter is not None:
        from pipeline.methods.fine_tune import released

        card = released.read_card(config.method.adapter)
    params = mechanism.params(config)
    rank = config.method.resolved_lora_rank if card is None else card.lora_rank
    delta = config.resolved_delta
    return TuningPlan(
        tuning_steps=params.tuning_steps,
        expected_batch_size=params.expected_batch_size,
        sampling_probability=params.sampling_probability,
        clip_norm=params.clip_norm,
        noise_multiplier=params.noise_multiplier,
        lora_rank=rank,
        adapter_parameters=config.method.model_sizes.adapter_parameters(rank),
        epsilon=subsampled.epsilon_of_event(params.event, delta),
        delta=delta,
        rho_at_order=None,
        label_mix_rho=params.label_mix_rho,
        examples=sum(mechanism.texts_of_labels(config)),
        trained_by=None if card is None else card.run_id,
        warnings=() if card is not None else _warnings(config, params),
        warm_steps=config.method.resolved_warm_steps,
    )


def with_rates(plan: TuningPlan, config: Config, rates: Calibration) -> TuningPlan:
    """The plan with an estimate of its time on a device of these rates."""
    return dataclasses.replace(plan, estimate=estimate.estimate(config, rates))


def with_budget(plan: TuningPlan, config: Config, answer: BudgetAnswer) -> TuningPlan:
    """The plan with what the ledger says of it."""
    price = answer.rho if answer.privacy_filter == 'renyi' else None
    return dataclasses.replace(plan, budget=answer, rho_at_order=price)


def _charge_words(answer: BudgetAnswer) -> str:
    """What the ledger takes for the run, and why it is not its ε."""
    if answer.privacy_filter == 'gaussian':
        return (
            'The ledger keeps its budget as a Gaussian mechanism, whoever decides on runs: it charges '
            f'ρ = {answer.rho:.6g}, that of noise multiplier {math.sqrt(0.5 / answer.rho):.6g}, which '
            'stands for all steps'
        )
    return (
        'A ledger keeps its budget in Rényi divergences, a weaker bound than PLD that holds for runs '
        f'of all kinds, whoever decides on them: it charges ρ = {answer.rho:.6g} at its order. One that was '
        'added with --filter gaussian takes less for training, and no votes on tokens'
    )


def _warnings(config: Config, params: TuningParams) -> tuple[str, ...]:
    """What to think about before a run, from public numbers alone."""
    found = []
    delta, many = config.resolved_delta, 'users' if config.budget.unit == 'user' else 'records'
    if config.input.records is not None and delta * config.input.records >= 1:
        found.append(words.macro('delta_relation', delta, config.input.records, 'declared', many))
    if params.expected_batch_size < 4 * params.noise_multiplier:
        found.append(
            f'A step adds noise of z = {params.noise_multiplier:g} clip norms to the gradients of about '
            f'{params.expected_batch_size} {many}: little will be learnt. Raise --expected-batch-size, '
            'or --epsilon.'
        )
    if config.method.full:
        numbers, together = (
            config.method.model_sizes.adapter_parameters(None),
            mechanism.units_together(config),
        )
        of_each = 'of one unit' if together == 1 else f'of each of {together} units'
        memory = f'{estimate.trained_memory(config) / 2**30:.1f} GiB'
        found.append(
            f'All {numbers:,} weights are trained: a difference in float32, two moments of Adam, a noisy sum '
            f'and a gradient {of_each} take {memory} beside the model. A step draws noise for each weight, '
            f'about {estimate.NOISE_SECONDS * numbers:.1f} s on one core. --lora-rank 8 trains '
            f'{config.method.model_sizes.adapter_parameters(8):,} numbers.'
        )
    return tuple(found)
