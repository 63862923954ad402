"""Batches -> synthetic examples, on workers that own an accelerator."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import activity
from models.assembly import GeneratorSettings
from models.generate.batch import BatchGenerator, GeneratedBatch
from models.privacy.report import BatchFacts
from models.records import Batch, SyntheticExample
from models.reference import ReleasedReference
from transforms.batch_files import example_of, facts_kind, read_batch, read_facts, write_batch
from transforms.durable import guarded, read_file, read_key
from transforms.run_files import ADAPTER_TENSORS
from transforms.worker_times import timed

# Outputs of the step that decodes.
_EXAMPLES, _FACTS = 'examples', 'facts'


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class GenerateText(beam.PTransform):
    """Batches -> synthetic examples, and the losses or the spending of each batch.

    The second collection is restricted to the curator. It is empty for a method that has neither losses
    nor spending (`facts_kind`).

    A finished batch is read from its file and emitted as the generator would emit it. So a resumed run
    gives the same corpus.

    Attributes:
        accelerator: Resources that decoding asks of the engine, as Dataflow writes it:
            'type:nvidia-l4;count:1;install-nvidia-driver'. Engines that do not place workers ignore it.
        reference: The single `ReleasedReference` of these batches, as a side input. None: the batches
            have the reference of the settings, if there is one.
        model: Holds the loaded model of a process. Steps with the same object share the model.
    """

    settings: GeneratorSettings
    work_dir: str
    accelerator: str | None = None
    reference: beam.pvalue.AsSingleton | None = None
    model: shared.Shared = dataclasses.field(default_factory=shared.Shared)

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, batches: beam.PCollection[Batch]
    ) -> tuple[beam.PCollection[SyntheticExample], beam.PCollection[BatchFacts]]:
        of_round = () if self.reference is None else (self.reference,)
        decode = beam.ParDo(_Decode(self.settings, self.work_dir, self.model), *of_round)
        if self.accelerator is not None:
            # On this leaf alone: a hint on a composite would ask for accelerators to group with.
            decode.with_resource_hints(accelerator=self.accelerator)
        decoded = (
            batches
            # Accelerator workers should not also read and group.
            | 'SpreadBatches' >> beam.Reshuffle()
            | 'Decode' >> decode.with_outputs(_FACTS, main=_EXAMPLES)
        )
        examples = decoded[_EXAMPLES] | 'Released' >> beam.Map(_as_is).with_output_types(SyntheticExample)
        facts = decoded[_FACTS] | 'Restricted' >> beam.Map(_as_is).with_output_types(BatchFacts)
        # Nor write. And a later failure does not start the decoder again.
        return examples | 'KeepExamples' >> beam.Reshuffle(), facts | 'KeepFacts' >> beam.Reshuffle()


def load_generator(settings: GeneratorSettings) -> BatchGenerator:
    """The generator of a run, with its adapter if it has one.

    Raises:
        ValueError: The adapter is not the one that its card names.
        FileNotFoundError: The weights or the adapter are missing.
    """
    if settings.adapter is None:
        return settings.build()
    return settings.build(read_file(FileSystems.join(settings.adapter.folder, ADAPTER_TENSORS)))


def _as_is(element: Any) -> Any:
    """Returns its argument: a step of one output, which can have a type; an output of several cannot."""
    return element


class _Decode(beam.DoFn):
    """Loads the model once per process, then decodes one batch after another."""

    def __init__(self, settings: GeneratorSettings, work_dir: str, model: shared.Shared) -> None:
        self._settings = settings
        self._work_dir = work_dir
        self._shared = model

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def _generator(self) -> BatchGenerator:
        # Not in `setup`: a resumed run whose batches are all finished needs no model.
        return self._shared.acquire(self._build)

    def _build(self) -> BatchGenerator:
        activity.report(activity.Activity('Loading the model'))
        with timed('loading', self._work_dir):
            return load_generator(self._settings)

    @beam.typehints.no_annotations
    def process(
        self, batch: Batch, released: ReleasedReference | None = None
    ) -> Iterator[SyntheticExample | beam.pvalue.TaggedOutput]:
        batch_id = str(batch.batch_id)
        examples = read_batch(self._work_dir, batch_id, example_of)
        if examples is None:
            generator, reference = self._generator(), self._reference(batch, released)
            with timed('decoding', self._work_dir):
                generated = self._decode(generator, batch, reference)
            write_batch(self._work_dir, batch_id, generated.examples, generated.loss or generated.spending)
            # Another worker may have been faster: the file on disk is the one that counts.
            examples = read_batch(self._work_dir, batch_id, example_of)
        if examples is None:
            raise FileNotFoundError(
                f'Expected batch {batch_id} in the work directory, where it was just written. '
                'Check that no other program removes files there, and resume.'
            )
        yield from examples
        kind = facts_kind(self._settings.params)
        if kind is not None:
            yield beam.pvalue.TaggedOutput(_FACTS, read_facts(self._work_dir, batch_id, kind))

    def _reference(self, batch: Batch, released: ReleasedReference | None) -> tuple[str, ...]:
        """The reference texts of a batch: in the second round those of its group, else those of its label."""
        if released is not None:
            return released.texts_by_group[batch.batch_id.group]
        reference = self._settings.reference
        return () if reference is None else reference.of_label(batch.label)

    def _decode(self, generator: BatchGenerator, batch: Batch, reference: tuple[str, ...]) -> GeneratedBatch:
        return guarded(
            lambda: generator.generate(batch, self._key, reference),
            expected=f'batch {batch.batch_id} to decode',
            work_dir=self._work_dir,
            name=str(batch.batch_id),
        )
