"""The trained adapter -> its texts, on as many workers as there are."""

from collections.abc import Iterator

from apache_beam.utils import shared

from models import activity
from models.finetuning.sample import PlannedTexts, TextSampler
from models.finetuning.settings import TuningSettings
from models.records import BatchId, TunedExample
from models.sampling.settings import AdapterFile
from transforms.adapters import read_adapter
from transforms.batch_files import read_batch, write_batch
from transforms.durable import read_key
from transforms.together import Together
from transforms.worker_times import timed


def load_sampler(folder: str, trained: str, settings: TuningSettings) -> TextSampler:
    """The model with the adapter of a folder, whose file has the SHA-256 `trained`.

    Raises:
        ValueError: The adapter is another one.
    """
    activity.report(activity.Activity('Loading the model'))
    file = AdapterFile(folder=folder, rank=settings.lora_rank, sha256=trained)
    return TextSampler(settings, read_adapter(file, settings.model))


class SampleTexts(Together[PlannedTexts, TunedExample]):
    """(group, index, number of texts) of a batch -> its texts; loads the model once per process.

    A finished batch is read from its file. A text is the same whatever is beside it.
    """

    def __init__(self, settings: TuningSettings, work_dir: str, folder: str) -> None:
        self._settings, self._work_dir, self._folder = settings, work_dir, folder
        self._shared = shared.Shared()

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def process(self, element: tuple[int, int, int], trained: str) -> Iterator[TunedExample]:
        group, index, size = element
        batch = PlannedTexts(BatchId(group=group, index=index), self._settings.labels[group], size)
        if (texts := read_batch(self._work_dir, str(batch.batch_id), TunedExample)) is not None:
            yield from texts
            return
        self._trained = trained
        yield from self.wait(batch, batch.size)

    def work(self, elements: list[PlannedTexts]) -> Iterator[TunedExample]:
        sampler = self._shared.acquire(self._load, tag=self._trained)
        with timed('decoding', self._work_dir):
            sampled = sampler.sample(elements, self._key)
        for batch, examples in zip(elements, sampled, strict=True):
            write_batch(self._work_dir, str(batch.batch_id), examples)
            # Another worker may have been faster: the file on disk is the one that counts.
            yield from read_batch(self._work_dir, str(batch.batch_id), TunedExample) or ()

    def _load(self) -> TextSampler:
        with timed('loading', self._work_dir):
            return load_sampler(self._folder, self._trained, self._settings)
