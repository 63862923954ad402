"""All units -> one trained adapter, on one worker."""

from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models import activity
from models.finetuning import adapter as adapters
from models.finetuning.settings import TuningSettings
from models.finetuning.train import Trainer
from models.finetuning.units import Row, in_order
from transforms.durable import guarded, read_file, read_key, write_file
from transforms.run_files import ADAPTER_TENSORS, TUNING_FOLDER
from transforms.worker_times import timed


def train_adapter(rows: Iterable[Row], settings: TuningSettings, work_dir: str) -> str:
    """Trains an adapter and writes it to the work directory; returns the SHA-256 of the file there.

    An adapter that is there already is not trained again. Rows, one for each unit, come in any order;
    they are private.

    Raises:
        RuntimeError: Training failed. The error names a file in the work directory and quotes nothing.
    """
    path = FileSystems.join(work_dir, ADAPTER_TENSORS)
    if not FileSystems.exists(path):
        # Training reads records, so the text of an error stays with the curator.
        data = guarded(
            lambda: _train(rows, settings, work_dir),
            expected='fine-tuning to finish',
            work_dir=work_dir,
            name='train',
        )
        write_file(path, data)
    # Another worker may have been faster: the file on disk is the one that counts.
    return adapters.digest(read_file(path))


def _train(rows: Iterable[Row], settings: TuningSettings, work_dir: str) -> bytes:
    activity.report(activity.Activity('Loading the model'))
    key = read_key(work_dir)
    checkpoints = FileSystems.join(work_dir, TUNING_FOLDER)
    with timed('loading', work_dir):
        trainer = Trainer(settings)
    with timed('training', work_dir):
        return adapters.to_bytes(trainer.train(in_order(rows), key, checkpoints))


class TrainAdapter(beam.DoFn):
    """One element, and all units as a side input -> SHA-256 of the adapter: see `train_adapter`."""

    def __init__(self, settings: TuningSettings, work_dir: str) -> None:
        self._settings, self._work_dir = settings, work_dir

    def process(self, _: None, rows: Iterable[Row]) -> Iterator[str]:
        yield train_adapter(rows, self._settings, self._work_dir)
