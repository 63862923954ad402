"""All settings of DP fine-tuning: the mechanism, the adapter, and sampling from it."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from models.finetuning import label_mix
from models.privacy import counts
from models.privacy.accounting import subsampled
from models.privacy.gradients import TuningParams
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from pipeline.settings.structure import Structured

NAME = 'fine-tune'
# Units whose gradients are computed together. A processor's caches hold what a few compute; an accelerator
# has more to do at once.
UNITS_ON_PROCESSOR, UNITS_ON_ACCELERATOR = 4, 16
# However many texts are sampled together: a sum of more units has no room (`whole_numbers.TOGETHER`).
MOST_UNITS_TOGETHER = 256
# Texts that are sampled together: these have no gradient.
TEXTS_TOGETHER = 64
DEFAULT_WARM_STEPS = 50
# Rates of factors, as docs/measured.md scores them; of a model as small as the bundled one; of all weights.
LEARNING_RATE, LEARNING_RATE_OF_SMALL, LEARNING_RATE_OF_ALL = 3e-3, 1e-2, 5e-4
SMALL_PARAMETERS = 50_000_000
# Numbers of gradients of all weights that are held together: 1 GiB.
MOST_GRADIENT_NUMBERS = 2**28
# Settings without use in a run that samples no text, and those that say whether it samples any.
SAMPLING_SETTINGS = (
    'temperature', 'top_p', 'top_k', 'shards', 'label_mix', 'fixed', 'close_truncated', 'min_example_tokens',
)  # fmt: skip
NO_TEXTS = {'examples_per_label': 0}
OF_TEXTS = (*SAMPLING_SETTINGS, *NO_TEXTS, 'examples', 'adapter')

_setting = functools.partial(panel.setting, 'Tuning')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(panel.Panel):
    """Settings of training an adapter, and of sampling texts with it."""

    tuning_steps: int = _setting('T: steps of DP-Adam.', 200)
    expected_batch_size: int = _setting(
        's: units of a step in the mean, and the public divisor of every gradient. Each unit is in each step '
        'with probability s over the declared --records.',
        64,
    )
    clip_norm: float = _setting(
        'C: the L2 norm that the one gradient of each unit is clipped to, however many records it has.', 1.0
    )
    noise_multiplier: float | None = _setting(
        "z: the noise's standard deviation over C. Default: the least for --epsilon.", None
    )
    lora_rank: int = _setting('r: rank of the low-rank factors that are trained.', 8)
    full: bool = _setting(
        'Train all weights of the model in place of low-rank factors: a difference that is added to them. '
        'Each has its noise, and the gradient of a unit is as large as the model.',
        False,
    )
    remat: bool = _setting(
        'Compute each layer a second time on the way back, in place of keeping what it computed: far less '
        'memory for more time.',
        False,
    )
    learning_rate: float | None = _setting(
        'Of DP-Adam. Default: 0.003, of a model as small as the bundled one 0.01, and with --full 0.0005.',
        None,
    )
    warm_start: str | None = _setting(
        'Texts that the adapter is trained on before its first private step, for free: the folder of a '
        'finished run, or files like those of --input, with labels. Public, or released: never texts of '
        'these records.',
        None,
        path='patterns',
    )
    warm_steps: int = _setting('Steps on the texts of --warm-start.', DEFAULT_WARM_STEPS)
    warm_learning_rate: float | None = _setting(
        'Of Adam in these steps, whose gradients have no noise. Default: a third of --learning-rate.', None
    )
    mismatch_weight: float = _setting(
        'lambda: how much a text is pushed away from the instructions of other labels; 0 for not at all.', 0.2
    )
    wrong_prompts: int = _setting(
        'Instructions of other labels that a text is pushed away from at a step, drawn for each unit anew.', 1
    )
    mismatch_every: int = _setting(
        'Steps of which only the first has instructions of other labels: 4 for every fourth step, which '
        'saves nearly half of the time of the others.',
        1,
    )
    examples_per_label: int = _setting(
        'Texts to sample of each label; they are free. 0 leaves the adapter alone, as `dp-corpus fine-tune` '
        'does.',
        100,
    )
    examples: int | None = _setting(
        'Texts of the corpus, of all labels together and free: in place of --examples-per-label.',
        None,
        instead_of='examples_per_label',
    )
    label_mix: tuple[str, ...] = _setting(
        'Shares of the labels among the texts, as LABEL=SHARE,..., of all declared labels: public numbers, '
        'never counted in the records. The texts stay as many. Default: equal shares.',
        (),
        names_path=False,
    )
    label_mix_rho: float | None = _setting(
        'rho of noisy counts of the units of each label, drawn once before training: the texts have the '
        'labels in these shares, and so have those that are sampled from the adapter later. epsilon pays '
        'for them too.',
        None,
    )
    temperature: float | None = _setting('Temperature of sampling. Default: 1.', None)
    top_p: float = _setting(
        'Nucleus: sample from the most probable tokens that have this share of the probability.', 0.8
    )
    top_k: int | None = _setting('Sample from so many of the most probable tokens at most.', None)
    adapter: str | None = _setting(
        'Folder of a finished fine-tuning run, or of its adapter: sample more texts from it, without a '
        'record and for free. Its prompts and labels are those that it was trained with.',
        None,
        path='file',
        implies_method=True,
    )

    def check(self) -> None:
        self._check_positive(
            'tuning_steps',
            'expected_batch_size',
            'lora_rank',
            'warm_steps',
            'wrong_prompts',
            'mismatch_every',
            'examples',
            'top_k',
        )
        self._check_beside('warm_start', 'warm_steps', 'warm_learning_rate')
        if self.examples is not None and self.examples_per_label != type(self).examples_per_label:
            raise ValueError(
                f'Expected examples or examples_per_label, got examples={self.examples}, '
                f'examples_per_label={self.examples_per_label}. Give one: the first counts all labels.'
            )
        if self.full and self.lora_rank != type(self).lora_rank:
            raise ValueError(
                f'Expected no lora_rank with full=True, got lora_rank={self.lora_rank}. Training all weights '
                'has no rank: leave --lora-rank out, or --full.'
            )
        if self.examples_per_label < 0:
            raise ValueError(
                f'Expected examples_per_label >= 0, got examples_per_label={self.examples_per_label}. Give a '
                'whole number, 0 for an adapter without texts.'
            )
        self._check_finite(
            'clip_norm', 'noise_multiplier', 'learning_rate', 'warm_learning_rate', 'label_mix_rho',
            'temperature',
        )  # fmt: skip
        if not 0 <= self.mismatch_weight < 1:
            raise ValueError(
                f'Expected 0 <= mismatch_weight < 1, got mismatch_weight={self.mismatch_weight!r}. From 1 on '
                'a text would be unlearnt faster than it is learnt: give 0.2, say.'
            )
        if self.mismatch_every != 1 and not self.mismatch_weight:
            raise ValueError(
                f'Expected mismatch_weight > 0 with mismatch_every={self.mismatch_every}, got '
                'mismatch_weight=0. No step has instructions of other labels: leave --mismatch-every out.'
            )
        for entry in self.label_mix:
            label, equals, share = entry.rpartition('=')
            if not (label and equals and _is_positive(share)):
                raise ValueError(
                    f'Expected LABEL=SHARE with a finite share > 0, got label_mix={entry!r}. Give '
                    "--label-mix 'A1=3,B2=1', say, and leave a label without texts undeclared."
                )
        self._check_share('top_p')

    @property
    def rank(self) -> int | None:
        """The rank of the adapter that is trained; None for a difference of all weights."""
        return None if self.full else self.lora_rank

    @property
    def free_steps(self) -> int:
        return 0 if self.warm_start is None else self.warm_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuneSettings(Tuning, Structured, MethodSettings):
    """DP-SGD trains an adapter, and texts are sampled with it (FT)."""

    name: ClassVar[str] = NAME
    panels: ClassVar[tuple[str, ...]] = ('Tuning', 'Prompt', 'Structure', 'Model')
    added_help: ClassVar[Mapping[str, str]] = {
        'dtype': 'And float32 on any processor.',
        'micro_batch_size': 'They are units whose gradients are held together, and texts that are sampled '
        'together; at most 256 units are. Default: 64 texts, and 4 units on a processor or 16 on an '
        'accelerator, but with --full only as many as have gradients of 1 GiB.',
    }

    def check_run(self, declared: Input, budget: Budget, output: Output, delta: float | None) -> None:
        self.label_attributes(declared)
        _ = self.structure  # a schema checks itself
        if self.adapter is not None:
            if not self.writes_texts:
                raise ValueError(
                    f'Expected examples_per_label >= 1 with adapter={self.adapter!r}, got '
                    'examples_per_label=0. It is trained already: say how many texts to sample from it.'
                )
            return  # `released.with_adapter`
        if not self.writes_texts:
            why = 'It is of texts, and none is sampled.'
            panel.refuse((self, output), dict.fromkeys(SAMPLING_SETTINGS, why), beside='examples_per_label=0')
        if declared.records is None:
            raise ValueError(
                f'Expected a declared number of units with method={NAME!r}, got records=None. Give --records '
                'N (of users, with --unit user): each is in a step with probability expected_batch_size / N.'
            )
        budget.check_either('noise_multiplier', self.noise_multiplier)
        if self.label_mix_rho is not None:
            self._check_label_mix_rho(declared)
        # The mechanism's settings and a mix of labels check themselves.
        self._params(declared, budget, noise_multiplier=self.noise_multiplier or 1.0)
        self.texts_of_labels(declared)

    def _check_label_mix_rho(self, declared: Input) -> None:
        if self.label_mix:
            raise ValueError(
                f'Expected either label_mix or label_mix_rho, got label_mix={list(self.label_mix)!r}, '
                f'label_mix_rho={self.label_mix_rho!r}. Give shares that are public, which are free, or have '
                'them counted with noise.'
            )
        if len(declared.label_values) < 2:
            raise ValueError(
                f'Expected two labels or more with label_mix_rho={self.label_mix_rho!r}, got '
                f'labels={list(declared.labels)!r}. Of one label there is nothing to count: leave it out.'
            )

    @property
    def reads_records(self) -> bool:
        return self.adapter is None

    @property
    def writes_texts(self) -> bool:
        return self.examples_per_label > 0

    @property
    def rate(self) -> float:
        """The rate as given, or that of what is trained: Adam moves a weight by about it at each step."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.full:
            return LEARNING_RATE_OF_ALL
        is_small = self.model_sizes.num_parameters < SMALL_PARAMETERS
        return LEARNING_RATE_OF_SMALL if is_small else LEARNING_RATE

    @property
    def free_rate(self) -> float:
        """The rate as given, or a third of the other: without noise all numbers move together."""
        if self.warm_learning_rate is not None:
            return self.warm_learning_rate
        return self.rate / 3

    @property
    def rows_together(self) -> int:
        return self.micro_batch_size or TEXTS_TOGETHER

    def units_together(self, *, on_accelerator: bool) -> int:
        """Units whose gradients are computed together: one has as many numbers as are trained. Public."""
        if self.micro_batch_size is not None:
            return min(self.micro_batch_size, MOST_UNITS_TOGETHER)
        most = UNITS_ON_ACCELERATOR if on_accelerator else UNITS_ON_PROCESSOR
        if not self.full:
            return most
        return max(1, min(most, MOST_GRADIENT_NUMBERS // self.model_sizes.num_parameters))

    def mechanism(self, declared: Input, budget: Budget, delta: float) -> TuningParams:
        """The mechanism, with the noise multiplier solved for where epsilon was given."""
        noise_multiplier = self.noise_multiplier
        if noise_multiplier is None:
            assert budget.epsilon is not None  # `check_run`
            rho, params = self.label_mix_rho, self._params(declared, budget, noise_multiplier=1.0)
            noise_multiplier = subsampled.solve_noise_multiplier(
                sampling_probability=params.sampling_probability,
                steps=params.tuning_steps,
                epsilon=budget.epsilon,
                delta=delta,
                sigma=None if rho is None else counts.gaussian_scale(rho),
            )
        return self._params(declared, budget, noise_multiplier=noise_multiplier)

    def _params(self, declared: Input, budget: Budget, *, noise_multiplier: float) -> TuningParams:
        assert declared.sampled_records is not None  # `check_run`
        return TuningParams(
            units=declared.sampled_records,
            expected_batch_size=self.expected_batch_size,
            tuning_steps=self.tuning_steps,
            clip_norm=self.clip_norm,
            noise_multiplier=noise_multiplier,
            unit=budget.unit,
            examples_per_context=budget.examples_per_context,
            label_mix_rho=self.label_mix_rho,
        )

    def wanted_texts(self, labels: int) -> int:
        return self.examples_per_label * labels if self.examples is None else self.examples

    def texts_of_labels(self, declared: Input, released: Sequence[int] | None = None) -> tuple[int, ...]:
        """Texts to sample of each label, in their declared order: by the given mix, or the released one.

        Without either the number of each is the same. Where the run itself counts labels the mix is not
        known yet: see `models.finetuning.settings.TuningSettings.texts_by`. `released` are noisy counts of
        labels that were released with the adapter.
        """
        labels = declared.label_values
        if not self.label_mix:
            if released is not None:
                return label_mix.texts_of_counts(self.wanted_texts(len(labels)), tuple(released))
            if self.examples is None:
                return (self.examples_per_label,) * len(labels)
            return label_mix.texts_of_shares(self.examples, [1.0] * len(labels))
        mix = (entry.rpartition('=') for entry in self.label_mix)
        pairs = [(declared.label_named(label), float(share)) for label, _, share in mix]
        shares = dict(pairs)
        if len(pairs) != len(labels) or shares.keys() != set(labels):
            raise ValueError(
                f'Expected the share of each declared label once, got label_mix={list(self.label_mix)!r}, '
                f'labels={list(labels)!r}. Give LABEL=SHARE for every one of them.'
            )
        in_order = [shares[str(label)] for label in labels]
        return label_mix.texts_of_shares(self.wanted_texts(len(labels)), in_order)


def _is_positive(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number > 0 and math.isfinite(number)


# Settings of private prediction that fine-tuning has something else in place of.
INSTEAD = {
    'batch_size': 'It is the number of contexts that vote. Give --expected-batch-size, of a step.',
    'clip_bound': 'It clips votes on tokens. Give --clip-norm for gradients.',
    **dict.fromkeys(
        ('batches_per_label', 'count_rho'),
        'Text is sampled from the adapter, as much as is asked for: give --examples-per-label, and '
        '--label-mix-rho for the mix of labels.',
    ),
    **dict.fromkeys(
        ('condition_on', 'condition_rho'),
        'It counts records by the values that examples are then given in turn. Here the adapter learns '
        'which values texts have: give one of them to every text with --fixed.',
    ),
}
