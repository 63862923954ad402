"""Batches -> synthetic examples, on workers that own an accelerator.

The one place where private elements become releasable ones. A batch is one element,
formed by us: no runner bundle, no `BatchElements`, no `RunInference`.
"""

import dataclasses
import json
import pathlib
import traceback
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models.assembly import GeneratorSettings
from models.generate import BatchGenerator, GeneratedBatch
from models.privacy.ex_post import BatchLoss
from models.privacy.randomness import RunKey
from models.records import Batch, SyntheticExample

BATCHES_FOLDER = 'batches'
LOSSES_FOLDER = 'losses'
ERRORS_FOLDER = 'errors'


def batch_path(work_dir: str, batch_id: str) -> str:
    """Where a finished batch is kept."""
    return FileSystems.join(work_dir, BATCHES_FOLDER, f'{batch_id}.json')


def write_file(path: str, data: bytes) -> None:
    """Writes a file whole or not at all: a temporary name, then a rename.

    A file that is there already stays: whoever wrote it drew the same noise.
    """
    temporary = f'{path}.{uuid.uuid4().hex}.tmp'
    # The name tells nothing of the codec: bytes go out as they are.
    with FileSystems.create(temporary, compression_type=_PLAIN) as file:
        file.write(data)
    if FileSystems.exists(path):
        FileSystems.delete([temporary])
    else:
        FileSystems.rename([temporary], [path])


def keep_details(work_dir: str, name: str) -> str:
    """Writes the exception that is being handled into the work directory; returns the file's place there.

    An exception's text may quote data, and runners log and show it (METHOD 8): what is
    raised instead names this file.
    """
    file = f'{name}.{uuid.uuid4().hex}.txt'
    path = FileSystems.join(work_dir, ERRORS_FOLDER, file)
    write_file(path, traceback.format_exc().encode(errors='replace'))
    return f'{ERRORS_FOLDER}/{file}'


_PLAIN = beam.io.filesystem.CompressionTypes.UNCOMPRESSED


def write_batch(
    work_dir: str, batch_id: str, examples: Iterable[SyntheticExample], loss: BatchLoss | None = None
) -> None:
    """Makes a finished batch durable: its losses, where it has any, before its examples."""
    if loss is not None:
        data = json.dumps(dataclasses.asdict(loss)).encode()
        write_file(FileSystems.join(work_dir, LOSSES_FOLDER, f'{batch_id}.json'), data)
    rows = [dataclasses.asdict(example) for example in examples]
    write_file(batch_path(work_dir, batch_id), json.dumps(rows, ensure_ascii=False).encode())


def read_batch(work_dir: str, batch_id: str) -> list[SyntheticExample] | None:
    """The examples of a finished batch; None where it is not finished."""
    path = batch_path(work_dir, batch_id)
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path, compression_type=_PLAIN) as file:
        return [SyntheticExample(**row) for row in json.loads(file.read())]


def read_loss(work_dir: str, batch_id: str) -> BatchLoss:
    """The losses of a finished batch of a median run."""
    path = FileSystems.join(work_dir, LOSSES_FOLDER, f'{batch_id}.json')
    with FileSystems.open(path, compression_type=_PLAIN) as file:
        values = json.loads(file.read())
    return BatchLoss(
        batch_id=values['batch_id'],
        minus_log_alpha=tuple(values['minus_log_alpha']),
        log_beta=tuple(values['log_beta']),
        places=tuple(values['places']),
        is_private=tuple(values['is_private']),
    )


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class GenerateText(beam.PTransform):
    """Batches -> synthetic examples, and the losses of a median run's batches.

    The second collection is restricted to the curator, and empty where the aggregate has
    a price in advance.

    A batch that is finished already is read back and emitted, as the generator would
    emit it, so that a resumed run gives the same corpus.

    Attributes:
        settings: What a worker builds its generator from.
        work_dir: The curator's folder, with the run key.
    """

    settings: GeneratorSettings
    work_dir: str

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, batches: beam.PCollection[Batch]
    ) -> tuple[beam.PCollection[SyntheticExample], beam.PCollection[BatchLoss]]:
        decoded = (
            batches
            # Accelerator workers should not also read and group.
            | 'SpreadBatches' >> beam.Reshuffle()
            | 'Decode'
            >> beam.ParDo(_Decode(self.settings, self.work_dir)).with_outputs(_LOSSES, main=_EXAMPLES)
        )
        examples = decoded[_EXAMPLES] | 'Released' >> beam.Map(_as_is).with_output_types(SyntheticExample)
        losses = decoded[_LOSSES] | 'Restricted' >> beam.Map(_as_is).with_output_types(BatchLoss)
        # Nor write: and a later failure does not come back to the decoder.
        return examples | 'KeepExamples' >> beam.Reshuffle(), losses | 'KeepLosses' >> beam.Reshuffle()


_EXAMPLES, _LOSSES = 'examples', 'losses'


def _as_is(element: Any) -> Any:
    """Outputs of a step with several have no types of their own: this gives each one its."""
    return element


class _Decode(beam.DoFn):
    """Loads the model once per process, then decodes batch after batch."""

    def __init__(self, settings: GeneratorSettings, work_dir: str) -> None:
        self._settings = settings
        self._work_dir = work_dir
        self._shared = shared.Shared()

    def setup(self) -> None:
        self._key = RunKey.read(pathlib.Path(self._work_dir) / 'run.key')

    def _generator(self) -> BatchGenerator:
        # Not in `setup`: a resumed run whose batches are all finished needs no model.
        return self._shared.acquire(self._settings.build)

    @beam.typehints.no_annotations
    def process(self, batch: Batch) -> Iterator[SyntheticExample | beam.pvalue.TaggedOutput]:
        batch_id = str(batch.batch_id)
        examples = read_batch(self._work_dir, batch_id)
        if examples is None:
            generated = self._decode(batch)
            write_batch(self._work_dir, batch_id, generated.examples, generated.loss)
            # What is on disk counts, should another worker have been faster.
            examples = read_batch(self._work_dir, batch_id)
        if examples is None:
            raise FileNotFoundError(
                f'Expected batch {batch_id} in the work directory, where it was just written. '
                'Check that nothing cleans the folder, and resume.'
            )
        yield from examples
        if self._settings.params.is_ex_post:
            yield beam.pvalue.TaggedOutput(_LOSSES, read_loss(self._work_dir, batch_id))

    def _decode(self, batch: Batch) -> GeneratedBatch:
        generator = self._generator()
        try:
            return generator.generate(batch, self._key)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text stays with the curator
            place, kind = keep_details(self._work_dir, str(batch.batch_id)), type(error).__name__
        raise RuntimeError(
            f'Expected batch {batch.batch_id} to decode, got error={kind}. '
            f'Its details are restricted to the curator: {place} in the work directory.'
        )
