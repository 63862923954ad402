"""Requests -> sampled texts, in one file for each batch, on as many workers as there are."""

import json
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import activity
from models.evolution.requests import Asked
from models.sampling.loading import SourceSettings, load_source
from models.sampling.source import Request, TextSource
from transforms.batch_files import batch_path
from transforms.durable import read_key, write_file

# (group and index of a batch, its requests): plain values have a deterministic coder.
BatchOfRequests = tuple[int, int, str]


def to_element(asked: Asked) -> BatchOfRequests:
    """A batch of requests as an element."""
    rows = [[request.name, request.label, list(request.examples)] for request in asked.requests]
    return (
        asked.batch_id.group,
        asked.batch_id.index,
        json.dumps([str(asked.batch_id), rows, [list(of) for of in asked.parents]], ensure_ascii=False),
    )


class SampleBatch(beam.DoFn):
    """A batch of requests -> its name, once its texts are written; loads the source once per process.

    Requests hold labels and released texts. No record is within reach: this step has no private input but
    the run key, from which the randomness of each text is drawn.
    """

    def __init__(self, settings: SourceSettings, work_dir: str) -> None:
        self._settings, self._work_dir = settings, work_dir
        self._shared = shared.Shared()

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def process(self, element: BatchOfRequests) -> Iterator[str]:
        batch_id, rows, parents = json.loads(element[2])
        path = batch_path(self._work_dir, batch_id)
        if not FileSystems.exists(path):
            source = self._shared.acquire(self._load)
            activity.report(activity.Activity('Sampling', batch_id=batch_id))
            requests = [
                Request(name=name, label=label, examples=tuple(examples)) for name, label, examples in rows
            ]
            answers = source.sample(requests, self._key)
            found = [
                {
                    'name': request.name,
                    'text': None if answer is None else answer.text,
                    'label': request.label,
                    'parents': of,
                    'tokens': 0 if answer is None else answer.tokens,
                    'truncated': answer is not None and answer.truncated,
                }
                for request, answer, of in zip(requests, answers, parents, strict=True)
            ]
            write_file(path, json.dumps(found, ensure_ascii=False).encode())
        yield batch_id

    def _load(self) -> TextSource:
        activity.report(activity.Activity('Loading the model'))
        return load_source(self._settings)
