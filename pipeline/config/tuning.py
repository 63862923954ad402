"""Settings of DP fine-tuning (--method fine-tune): the mechanism, the adapter, and sampling from it."""

import dataclasses
import functools
import math

from pipeline.config import panel

_setting = functools.partial(panel.setting, 'Tuning')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(panel.Panel):
    """How an adapter is trained, and how texts are sampled with it; of --method fine-tune alone."""

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
    learning_rate: float | None = _setting('Of DP-Adam. Default: 0.01, or 0.0005 with --full.', None)
    mismatch_weight: float = _setting(
        'lambda: how much a text is pushed away from the instructions of other labels; 0 for not at all.', 0.2
    )
    wrong_prompts: int = _setting(
        'Instructions of other labels that a text is pushed away from at a step, drawn for each unit anew.', 1
    )
    examples_per_label: int = _setting(
        'Texts to sample of each label; they are free. 0 leaves the adapter alone, as `dp-corpus fine-tune` '
        'does.',
        100,
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
    top_p: float = _setting(
        'Nucleus: sample from the most probable tokens that have this share of the probability.', 0.8
    )
    top_k: int | None = _setting('Sample from so many of the most probable tokens at most.', None)
    adapter: str | None = _setting(
        'Folder of a finished fine-tuning run, or of its adapter: sample more texts from it, without a '
        'record and for free. Its prompts and labels are those that it was trained with. With --method '
        'predict records vote on what the model predicts with it; what it cost comes on top.',
        None,
    )

    def check(self) -> None:
        self._check_positive(
            'tuning_steps',
            'expected_batch_size',
            'lora_rank',
            'wrong_prompts',
            'top_k',
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
        for name in ('clip_norm', 'noise_multiplier', 'learning_rate', 'label_mix_rho'):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(
                    f'Expected a finite {name} > 0, got {name}={value!r}. Give a positive number.'
                )
        if not 0 <= self.mismatch_weight < 1:
            raise ValueError(
                f'Expected 0 <= mismatch_weight < 1, got mismatch_weight={self.mismatch_weight!r}. From 1 on '
                'a text would be unlearnt faster than it is learnt: give 0.2, say.'
            )
        for entry in self.label_mix:
            label, equals, share = entry.rpartition('=')
            if not (label and equals and _is_positive(share)):
                raise ValueError(
                    f'Expected LABEL=SHARE with a finite share > 0, got label_mix={entry!r}. Give '
                    "--label-mix 'A1=3,B2=1', say, and leave a label without texts undeclared."
                )
        if not 0 < self.top_p <= 1:
            raise ValueError(f'Expected 0 < top_p <= 1, got top_p={self.top_p!r}. Give 1 for all tokens.')

    @property
    def resolved_lora_rank(self) -> int | None:
        """The rank of the adapter that is trained; None for a difference of all weights."""
        return None if self.full else self.lora_rank

    @property
    def resolved_learning_rate(self) -> float:
        """As given, or what suits what is trained: Adam moves a weight by about as much at each step."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 5e-4 if self.full else 1e-2


def _is_positive(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number > 0 and math.isfinite(number)
