"""Requests -> sampled texts, in one file for each batch, on as many workers as there are."""

import json
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import activity
from models.evolution.requests import Asked
from models.sampling.loading import SourceSettings, load_source
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request, SampledText, TextSource
from transforms.adapters import read_adapter
from transforms.batch_files import batch_path, write_batch
from transforms.durable import read_key
from transforms.together import TOGETHER, Together
from transforms.worker_times import timed

# (group and index of a batch, its requests): plain values have a deterministic coder.
BatchOfRequests = tuple[int, int, str]
# Name, requests, and the parents of each.
_Batch = tuple[str, list[Request], list[list[str]]]


def to_element(asked: Asked) -> BatchOfRequests:
    """A batch of requests as an element."""
    rows = [[request.name, request.label, list(request.examples)] for request in asked.requests]
    return (
        asked.batch_id.group,
        asked.batch_id.index,
        json.dumps([str(asked.batch_id), rows, [list(names) for names in asked.parents]], ensure_ascii=False),
    )


class SampleBatch(Together[_Batch, str]):
    """A batch of requests -> its name, once its texts are written; loads the source once per process.

    Requests hold labels and released texts, and an adapter is an output of DP-SGD. No record is within reach:
    this step has no private input but the run key, from which the randomness of each text is drawn. A text is
    the same whatever is beside it.
    """

    def __init__(self, settings: SourceSettings, work_dir: str, doing: str) -> None:
        self._settings, self._work_dir, self._doing = settings, work_dir, doing
        self._shared = shared.Shared()
        # Answers of an endpoint are written at once: they may be paid for.
        self.together = TOGETHER if isinstance(settings, SamplerSettings) else 1

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def process(self, element: BatchOfRequests) -> Iterator[str]:
        batch_id, rows, parents = json.loads(element[2])
        if FileSystems.exists(batch_path(self._work_dir, batch_id)):
            yield batch_id
            return
        requests = [
            Request(name=name, label=label, examples=tuple(examples)) for name, label, examples in rows
        ]
        yield from self.wait((batch_id, requests, parents), len(requests))

    def work(self, elements: list[_Batch]) -> Iterator[str]:
        source = self._shared.acquire(self._load)
        activity.report(activity.Activity(self._doing))
        asked = [request for _, requests, _ in elements for request in requests]
        with timed('decoding', self._work_dir):
            answers = iter(source.sample(asked, self._key))
        for batch_id, requests, parents in elements:
            rows = [
                _row(request, next(answers), names) for request, names in zip(requests, parents, strict=True)
            ]
            write_batch(self._work_dir, batch_id, rows)
            yield batch_id

    def _load(self) -> TextSource:
        activity.report(activity.Activity('Loading the model'))
        settings, adapter = self._settings, None
        if isinstance(settings, SamplerSettings) and settings.adapter is not None:
            adapter = read_adapter(settings.adapter, settings.model)
        with timed('loading', self._work_dir):
            return load_source(settings, adapter)


def _row(request: Request, answer: SampledText | None, parents: list[str]) -> dict[str, Any]:
    """The row that is written of an answer, or of none."""
    return {
        'name': request.name,
        'text': None if answer is None else answer.text,
        'label': request.label,
        'parents': parents,
        'tokens': 0 if answer is None else answer.tokens,
        'truncated': answer is not None and answer.truncated,
    }
