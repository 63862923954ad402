"""One round: requests -> texts -> list -> noisy votes (METHOD 4e)."""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils import shared

from models import activity
from models.clustering.embedder import Embedder
from models.evolution import listing, requests
from models.evolution.generation import candidates_to_json
from models.evolution.settings import EvolutionSettings
from transforms.durable import draw_once, write_file
from transforms.evolve.files import (
    candidates_name,
    read_generations,
    read_sampled,
    round_path,
    vectors_path,
    vectors_to_bytes,
)
from transforms.evolve.sample import BatchOfRequests, SampleBatch, to_element
from transforms.worker_times import timed


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ListTexts(beam.PTransform):
    """The number of the round before -> the number of this round, once its list is written.

    Nothing private is an input: the list follows from the settings and from released votes. It is written
    before a vote, and a repeated step reads it. After the last vote the texts of the list are those that
    nobody votes on.

    Attributes:
        accelerator: Resources that sampling asks of the engine, as Dataflow writes it.
    """

    settings: EvolutionSettings
    work_dir: str
    number: int
    accelerator: str | None = None

    def expand(self, before: beam.PCollection[int]) -> beam.PCollection[int]:
        write = beam.ParDo(_WriteList(self.settings, self.work_dir, self.number))
        if not self.settings.samples_in(self.number):
            return before | 'WriteList' >> write.with_output_types(int)
        assert self.settings.source is not None
        sample = beam.ParDo(SampleBatch(self.settings.source, self.work_dir, self._doing))
        if self.accelerator is not None:
            sample.with_resource_hints(accelerator=self.accelerator)
        return (
            before
            | 'Ask'
            >> beam.FlatMap(_ask, self.settings, self.work_dir, self.number).with_output_types(
                BatchOfRequests
            )
            | 'SpreadBatches' >> beam.Reshuffle()
            | 'Sample' >> sample.with_output_types(str)
            # one int, once every batch is there
            | 'Together' >> beam.combiners.Count.Globally()
            | 'WriteList' >> write.with_output_types(int)
        )

    @property
    def _doing(self) -> str:
        return f'{self.settings.stage_of(self.number)}: sampling texts'


def _ask(_: int, settings: EvolutionSettings, work_dir: str, number: int) -> Iterator[BatchOfRequests]:
    """The requests of a round, which are written before the first of them is sampled."""

    def draw() -> str:
        earlier = read_generations(work_dir, min(number - 1, settings.params.rounds))
        return requests.to_json(requests.requests_of(settings, number, earlier))

    text = draw_once(round_path(work_dir, f'requests-{number:02d}.json'), draw)
    yield from map(to_element, requests.from_json(text))


def sample_here(settings: EvolutionSettings, work_dir: str, number: int) -> None:
    """Samples the texts of a round in this process, as the steps of a run do, where any are sampled."""
    if not settings.samples_in(number):
        return
    assert settings.source is not None
    sampler = SampleBatch(settings.source, work_dir, settings.stage_of(number))
    sampler.setup()
    sampler.start_bundle()
    for element in _ask(number - 1, settings, work_dir, number):
        collections.deque(sampler.process(element), maxlen=0)
    collections.deque(sampler.finish_bundle(), maxlen=0)


class _WriteList(beam.DoFn):
    """Any element -> the number of the round, once its list and the embeddings of it are written."""

    def __init__(self, settings: EvolutionSettings, work_dir: str, number: int) -> None:
        self._settings, self._work_dir, self._number = settings, work_dir, number
        self._shared = shared.Shared()

    def process(self, _: int) -> Iterator[int]:
        activity.report(activity.Activity(f'{self._settings.stage_of(self._number)}: listing texts'))
        embedder = self._shared.acquire(self._load)
        with timed('embedding', self._work_dir):
            write_list(self._settings, self._work_dir, self._number, embedder)
        yield self._number

    def _load(self) -> Embedder:
        with timed('loading', self._work_dir):
            return self._settings.embedder.load_embedder()


def write_list(settings: EvolutionSettings, work_dir: str, number: int, embedder: Embedder) -> None:
    """Writes the list of a round: of its sampled batches, or the given one; a written one stays.

    The embedder is the one that embeds records, too.

    Raises:
        ValueError: A batch is damaged, or the first round has no text to vote on.
    """
    if number == 1 and settings.start:
        candidates, vectors = listing.kept(settings.start, embedder)
    else:
        rows: list[Any] = []
        for batch_id, _ in settings.batches_of(number):
            rows += read_sampled(work_dir, str(batch_id))
        earlier = read_generations(work_dir, min(number - 1, settings.params.rounds))
        candidates, vectors = listing.listed(rows, settings, embedder, earlier)
        if 1 < number <= settings.params.rounds:
            # Texts of earlier rounds stand again, so that the noise of two tables cancels out between them.
            candidates = (*earlier[-1].candidates, *candidates)
            vectors = np.concatenate([earlier[-1].vectors, vectors])
    if not candidates and number == 1:
        raise ValueError(
            'Expected texts to vote on in round 1, got none that is whole, long enough and known to the '
            'embedder. Raise --max-example-tokens, lower --min-example-tokens, or choose another model, '
            'prompt or --embedder.'
        )
    # The list last: where it is, both are. Whoever repeats the step reads the first writer's texts.
    write_file(vectors_path(work_dir, number), vectors_to_bytes(vectors))
    write_file(round_path(work_dir, candidates_name(number)), candidates_to_json(number, candidates).encode())
