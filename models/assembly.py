"""Puts a `BatchGenerator` together on a worker, from public settings."""

import dataclasses
from collections.abc import Sequence

import jax

from models import compilation
from models.decoders import decoder, family
from models.finetuning.adapter import ReleasedAdapter
from models.generate.batch import BatchGenerator
from models.model_settings import ModelSettings
from models.privacy import mechanism
from models.privacy.params import MechanismParams
from models.prompts import PromptWriter
from models.records import Context
from models.reference import Reference

# Most tokens of a step where a structure forces some: a chosen one, and the keys and punctuation behind it.
# What is longer takes another step.
_STEP_TOKENS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorSettings(ModelSettings):
    """Everything that a worker needs to build its generator; all of it public, picklable.

    Attributes:
        micro_batch_size: Rows that go through the model together; rounded up to a
            multiple of 8 on each of the worker's devices.
        min_example_tokens: N: the tokens that an example has before what ends it; not beside a structure.
        mask: Name of a mask in `models.constraints.MASKS`; None for that of any text, and beside a
            structure.
        reference: The curator's reference texts; None without.
        adapter: The released adapter that the model decodes with; None for the model as it is.
    """

    run_id: str
    params: MechanismParams
    micro_batch_size: int
    min_example_tokens: int = 0
    mask: str | None = None
    reference: Reference | None = None
    adapter: ReleasedAdapter | None = None

    def writer(self) -> PromptWriter:
        """The prompts; needs the tokenizer, not the model."""
        return self.prompt_writer(min_example_tokens=self.min_example_tokens, mask=self.mask)

    def check_prompts(self, labels: Sequence[str | None]) -> None:
        """Writes the prompts of every label once, around a stand-in text.

        Raises:
            ValueError: A prompt does not fit, the template needs a schema that was not given, or the
                structure does not go with the prompt or the tokenizer.
        """
        writer = self.writer()
        if writer.structure is not None:
            writer.forced_table()
        stand_in = Context(context_hash=b'', texts=('stand-in',) * self.params.examples_per_context)
        for label in labels:
            writer.public_prompt(label)
            writer.private_prompts(label, [stand_in])

    def build(self, factors: bytes | None = None) -> BatchGenerator:
        """Loads the weights and places them on the worker's devices.

        Args:
            factors: Content of the adapter's file, where the run has one.

        Raises:
            ValueError: They are not those of the adapter, or are missing.
        """
        if (factors is None) != (self.adapter is None):
            raise ValueError(
                f'Expected factors exactly where there is an adapter, got factors={factors is not None}, '
                f'adapter={self.adapter is not None}. Build it with transforms.predict.load_generator.'
            )
        compilation.keep_programs(self.compilation_cache)
        adapter = None if self.adapter is None or factors is None else self.adapter.read(factors)
        multiple = family.ROWS_MULTIPLE * len(jax.local_devices())
        shapes = decoder.Shapes(
            max_prompt_tokens=self.max_prompt_tokens,
            max_example_tokens=self.params.max_example_tokens,
            micro_batch_size=-(-self.micro_batch_size // multiple) * multiple,
            rows_multiple=multiple,
            step_tokens=1 if self.structure is None else _STEP_TOKENS,
            columns=mechanism.columns_of_every_row(self.params),
        )
        return BatchGenerator(
            decoder=family.family_of(self.model).load_decoder(
                self.model,
                self.checkpoint,
                shapes=shapes,
                dtype=self.dtype,
                adapter=adapter,
            ),
            writer=self.writer(),
            params=self.params,
            run_id=self.run_id,
        )
