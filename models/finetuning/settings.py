"""The public settings from which workers build fine-tuning and sampling."""

import dataclasses

from models.batch_plan import BatchPlan
from models.finetuning import label_mix
from models.finetuning.units import Instructions
from models.model_settings import ModelSettings
from models.privacy.earlier_release import TextOrigin
from models.privacy.gradients import TuningParams
from models.prompts import PromptWriter

# However few units a micro-batch has, instructions of as many rows as so many of them have are held.
_UNITS_OF_SHARED = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningSettings(ModelSettings):
    """All of it public, picklable.

    Attributes:
        params: The mechanism; for a run that samples from a released adapter, the mechanism that trained it.
        labels: The declared labels, or a single None.
        micro_batch_size: Units whose gradients are computed together.
        max_example_tokens: T: longer texts are cut, and none longer is sampled.
        min_example_tokens: N: the tokens that a sampled text has before what ends it; not beside a
            structure.
        warm_start: (label, text) of texts that are no records, on which the adapter is trained before the
            first private step; none without.
        warm_steps: Steps on them.
        warm_origin: Origin of these texts. For the report.
        mismatch_weight: λ of FT's equation 4.
        wrong_prompts: |I|: wrong instructions of a unit at a step, fewer where there are fewer labels.
        mismatch_every: Number of steps of which the first has them.
        top_p: Nucleus: the share of probability that is sampled from.
        top_k: The number of most probable tokens that are sampled from; None for all.
        examples_per_label: Texts to sample of each label in the mean, which released noisy counts share out.
        examples: Texts of all labels in place of that; None where the number of each was given.
        texts_of_labels: Texts to sample of each label: at least 1 of each, or none of any, which leaves the
            adapter alone. Where the run counts labels the same number of each: see `texts_by`.
        texts_together: Texts that are sampled together; None for as many as units.
    """

    run_id: str
    params: TuningParams
    labels: tuple[str | None, ...]
    micro_batch_size: int
    max_example_tokens: int
    min_example_tokens: int = 0
    remat: bool = False
    lora_rank: int | None = 8
    learning_rate: float = 1e-3
    warm_start: tuple[tuple[str | None, str], ...] = dataclasses.field(default=(), repr=False)
    warm_steps: int = 0
    warm_learning_rate: float = 1e-3
    warm_origin: TextOrigin = TextOrigin()
    mismatch_weight: float = 0.2
    wrong_prompts: int = 1
    mismatch_every: int = 1
    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int | None = None
    examples_per_label: int = 0
    examples: int | None = None
    texts_of_labels: tuple[int, ...] = ()
    texts_together: int | None = None

    def writer(self) -> PromptWriter:
        """The prompts; needs the tokenizer, not the model."""
        return self.prompt_writer(min_example_tokens=self.min_example_tokens)

    def check_prompts(self) -> None:
        """Writes the instruction of every label once.

        Raises:
            ValueError: One does not fit, two labels have the same, or the structure does not go with the
                prompt or the tokenizer.
        """
        writer = self.writer()
        if writer.structure is not None:
            writer.forced_table()
        instructions = Instructions.of(writer, self.labels)
        if len({row.tobytes() for row in instructions.tokens}) < len(self.labels):
            raise ValueError(
                f'Expected an instruction of its own for each label, got labels={list(self.labels)!r} with '
                'the same. Choose a prompt whose public form holds {label}, and words that differ.'
            )

    def texts_by(self, plan: BatchPlan) -> tuple[int, ...]:
        """Texts to sample of each label: by the plan's noisy counts where it has any."""
        if plan.noisy_counts is None:
            return self.texts_of_labels
        wanted = self.examples_per_label * len(self.labels) if self.examples is None else self.examples
        return label_mix.texts_of_counts(wanted, plan.noisy_counts)

    @property
    def longest_instruction(self) -> int:
        """Tokens of the longest instruction of a label; needs the tokenizer."""
        writer = self.writer()
        return max(len(writer.public_prompt(label)) for label in self.labels)

    @property
    def sampled_together(self) -> int:
        """Texts of a planned batch."""
        return self.texts_together or self.micro_batch_size

    @property
    def wrong_prompts_of_step(self) -> int:
        """Wrong instructions beside the right one, as many as there are, at the steps that have any."""
        return min(self.wrong_prompts, len(self.labels) - 1) if self.mismatch_weight else 0

    def wrong_prompts_of(self, step: int) -> int:
        """Wrong instructions of each unit at a step. Public."""
        return 0 if step % self.mismatch_every else self.wrong_prompts_of_step

    @property
    def shares_instructions(self) -> bool:
        """True if units share what they compute of the instructions."""
        return shares_instructions(len(self.labels), 1 + self.wrong_prompts_of_step, self.micro_batch_size)


def shares_instructions(labels: int, ways: int, units_together: int) -> bool:
    """True if what all units of a step compute of the instructions is computed once and held meanwhile.

    It is where it takes no more memory than a micro-batch of that many units, or of a few, which holds as
    much for each of its rows. `ways` is the number of a unit's instructions, right and wrong ones.
    """
    return labels <= ways * max(units_together, _UNITS_OF_SHARED)
