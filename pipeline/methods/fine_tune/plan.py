"""The plan of a fine-tuning run: its price and its size, before anything is read or paid."""

import dataclasses
import math

from models.decoders.device import Dtype
from models.finetuning.settings import shares_instructions
from models.privacy import counts
from models.privacy.accounting import subsampled
from pipeline.check.input_check import InputCheck
from pipeline.ledger.answer import BudgetAnswer
from pipeline.methods.estimate import Estimate
from pipeline.methods.fine_tune.run import Config, TuningRun
from pipeline.methods.input_view import InputView, MeasureTexts, measure_continuations
from pipeline.methods.method import (
    FEWEST_OF_LABEL,
    ITEM_BYTES,
    LAST_RANK,
    RunPlan,
    Score,
    Standing,
    delta_warning,
)

# Seconds of a step's noise for each number that is trained: a keyed stream, and the normal's inverse.
# Measured on one core of a server; no accelerator helps.
_NOISE_SECONDS = 6e-8


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningPlan(RunPlan):
    """The plan of a fine-tuning run: what it would release and cost. All fields are public.

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
        rho_at_order: The ledger's charge, where one was asked that keeps its budget at a Rényi order: the
            divergence there, over the order.
        label_mix_rho: rho of the noisy counts that the texts' mix of labels follows from, as of the run
            that trained the adapter; None where units are not counted.
        examples: Texts of all labels.
        trained_by: The run that trained the adapter, where one is only sampled from: nothing is charged.
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
    rho_at_order: float | None
    label_mix_rho: float | None
    examples: int
    trained_by: str | None
    warm_steps: int = 0

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
        charge = [] if self.budget is None else [('', _charge_words(self.budget))]
        return [*rows, *self.rows_of_others(), *charge]


def plan_run(
    run: TuningRun, estimate: Estimate | None = None, budget: BudgetAnswer | None = None
) -> TuningPlan:
    """The plan of a run, with what it takes of this machine and what a ledger says, where these are given."""
    params = run.params
    return TuningPlan(
        method=run.method.name,
        tuning_steps=params.tuning_steps,
        expected_batch_size=params.expected_batch_size,
        sampling_probability=params.sampling_probability,
        clip_norm=params.clip_norm,
        noise_multiplier=params.noise_multiplier,
        lora_rank=run.lora_rank,
        adapter_parameters=run.method.model_sizes.adapter_parameters(run.lora_rank),
        epsilon=subsampled.epsilon_of_event(params.event, run.delta),
        delta=run.delta,
        rho_at_order=budget.rho if budget is not None and budget.privacy_filter == 'renyi' else None,
        label_mix_rho=params.label_mix_rho,
        examples=sum(run.texts_of_labels),
        trained_by=None if run.card is None else run.card.run_id,
        estimate=estimate,
        budget=budget,
        warnings=() if run.card is not None else _warnings(run),
        warm_steps=run.method.free_steps,
    )


def _charge_words(answer: BudgetAnswer) -> str:
    """The ledger's charge for the run, and why it is not its ε."""
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


def _warnings(run: TuningRun) -> tuple[str, ...]:
    """Warnings before a run, from public numbers alone."""
    warnings, params = list(delta_warning(run)), run.params
    many = 'users' if run.budget.unit == 'user' else 'records'
    if params.expected_batch_size < 4 * params.noise_multiplier:
        warnings.append(
            f'A step adds noise of z = {params.noise_multiplier:g} clip norms to the gradients of about '
            f'{params.expected_batch_size} {many}: little will be learnt. Raise --expected-batch-size, '
            'or --epsilon.'
        )
    if run.method.full:
        numbers, together = run.method.model_sizes.adapter_parameters(None), run.units_together
        of_each = 'of one unit' if together == 1 else f'of each of {together} units'
        held = f'{trained_memory(run) / 2**30:.1f} GiB'
        warnings.append(
            f'All {numbers:,} weights are trained: a difference in float32, two moments of Adam, a noisy sum '
            f'and a gradient {of_each} take {held} beside the model. A step draws noise for each weight, '
            f'about {_NOISE_SECONDS * numbers:.1f} s on one core. --lora-rank 8 trains '
            f'{run.method.model_sizes.adapter_parameters(8):,} numbers.'
        )
    return tuple(warnings)


# Rows of docs/measured.md, with Gemma 3 270M.
SCORES = (
    Score(what='bank questions', records=10003, labels=77, epsilon=1, texts=616, worth=0.67, of_records=0.87),
    Score(what='reviews', records=20000, labels=2, epsilon=1, texts=200, worth=0.58, of_records=0.75),
    Score(what='news', records=8000, labels=4, epsilon=1, texts=200, worth=0.69, of_records=0.83),
    Score(what='questions', records=5452, labels=6, epsilon=3, texts=300, worth=0.64, of_records=0.80),
    Score(what='questions', records=768, labels=6, epsilon=1, texts=300, worth=0.43, of_records=0.76),
    Score(what='medical notes', records=828, labels=20, epsilon=1, texts=40, worth=0.39, of_records=0.68),
)
# From so many units and such an epsilon on, texts of an adapter were worth more than those of votes on
# tokens; below, less. In between nothing was measured.
_FEWEST_UNITS, _LEAST_EPSILON = 2000, 2.0
# The epsilon of the run with many labels.
_LEAST_OF_MANY_LABELS = 1.0


def standing(units: float, epsilon: float | None, labels: int) -> Standing:
    """Second with thousands of units: as many texts as one likes, of which many have another label."""
    least = _LEAST_OF_MANY_LABELS if units / labels < FEWEST_OF_LABEL else _LEAST_EPSILON
    if units >= _FEWEST_UNITS and epsilon is not None and epsilon >= least:
        because = (
            'Texts of an adapter were worth more than votes on tokens, and any number of them is free. Votes '
            'on them (tune-refine) find those of the right label.'
        )
        return Standing(rank=2, because=because)
    because = 'With few records or a small ε, texts of an adapter were worth less than voted ones.'
    return Standing(rank=LAST_RANK, because=because)


def needed_memory(run: TuningRun, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights, adapter and a micro-batch take: of training, or of sampling."""
    sizes, item_bytes = run.method.model_sizes, ITEM_BYTES[dtype]
    length = run.method.max_prompt_tokens + run.method.max_example_tokens
    weights = sizes.num_parameters * item_bytes
    together = -(-run.method.rows_together // devices)
    sampling = together * length * sizes.cache_bytes_per_token(item_bytes)
    if run.method.adapter is not None:
        return weights // devices + sampling
    return weights + max(trained_memory(run, devices) + _kept_memory(run, devices), sampling)


def _kept_memory(run: TuningRun, devices: int) -> int:
    """Bytes of what layers compute of a device's units and the way back reads again."""
    sizes, settings = run.method.model_sizes, run.method
    texts = run.budget.examples_per_context * settings.max_example_tokens
    units, ways = -(-run.units_together // devices), 1 + run.wrong_prompts
    tokens = units * ways * (settings.max_prompt_tokens + texts)
    labels = len(run.input.label_values)
    if shares_instructions(labels, ways, run.units_together):
        # Shared instructions may be more than the micro-batch has.
        tokens += max(0, labels - units * ways) * settings.max_prompt_tokens
    length = settings.max_prompt_tokens + settings.max_example_tokens
    return sizes.gradient_bytes(tokens, length, remat=settings.remat)


def trained_memory(run: TuningRun, devices: int = 1) -> int:
    """Bytes that a device holds for all that is trained, a gradient of each of its units among them."""
    sizes = run.method.model_sizes
    numbers = sizes.adapter_parameters(run.method.rank)
    # The embedding has a gradient as the input and one as the output layer.
    of_unit = numbers + (sizes.num_embed * sizes.embed_dim if run.method.full else 0)
    # Itself, two moments of Adam, and a sum and its noise, which have two limbs each.
    return 4 * (7 * numbers + -(-run.units_together // devices) * of_unit)


@dataclasses.dataclass(frozen=True)
class TuningView(InputView):
    """Units, each with its one gradient."""

    config: Config

    @property
    def expected_batch_size(self) -> int:
        return self.config.method.expected_batch_size

    def measure(self) -> MeasureTexts:
        return measure_continuations(self.config)

    def off_by_number(self, check: InputCheck) -> str:
        assert check.declared_records is not None  # `FineTuneSettings.check_run`
        units_of_a_step = check.batch_size * check.units / check.declared_records
        return f'a step, which would hold {units_of_a_step:,.1f} units,'
