"""Votes on whole texts: records -> votes on public texts, in rounds -> a corpus (METHOD 4e)."""

import dataclasses
import json
from collections.abc import Iterator

import apache_beam as beam

from models.evolution import listing
from models.evolution.settings import EvolutionSettings
from models.privacy.report import BatchFacts
from models.records import BatchId, EvolvedExample, Record
from transforms.durable import draw_once
from transforms.evolve.embed import EmbedUnits
from transforms.evolve.files import read_candidates, read_generations, read_vectors, round_path
from transforms.evolve.rounds import ListTexts
from transforms.evolve.vote import Vote
from transforms.units import CountUnits, SelectUnits

CORPUS = 'corpus.json'


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class EvolveText(beam.PTransform):
    """Records -> the texts that they favour, and what the curator's report says of the units.

    The records are embedded once, and say in every round which texts of a list they are most like. They
    reach neither the source of texts nor a list. It returns four collections:

    1. The corpus: a function of the lists and of noisy votes, so it is releasable.
    2. The number of units of each label, under the name of the label's first batch; restricted to the
       curator.
    3. Nothing: votes on texts have neither losses nor spending of batches.
    4. Nothing: no record has to have a structure.

    Attributes:
        shards: Shares in which the units are embedded and vote: public.
        text_limit: Number of characters of a record that are embedded; None for all.
        accelerator: Resources that sampling asks of the engine, as Dataflow writes it.
        after: The single element that the first list waits for: a trained adapter, say. None for nothing.
    """

    settings: EvolutionSettings
    work_dir: str
    shards: int = 1
    text_limit: int | None = None
    accelerator: str | None = None
    after: beam.PCollection | None = None

    # Beam has no type hint for four outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[
        beam.PCollection[EvolvedExample],
        beam.PCollection[tuple[BatchId, int]],
        beam.PCollection[BatchFacts],
        beam.PCollection[tuple[str, int]],
    ]:
        root, settings = records.pipeline, self.settings
        # units: (unit hash, label, [text]), private
        units = records | 'Select' >> SelectUnits(
            settings.labels,
            self.work_dir,
            of_users=settings.params.unit == 'user',
            k=settings.params.examples_per_context,
            text_limit=self.text_limit,
        )
        embedded = units | 'Embed' >> EmbedUnits(
            settings.embedder, settings.labels, self.work_dir, self.shards
        )
        # done: the number of the last round that is finished
        if self.after is None:
            done = root | 'Begin' >> beam.Create([0], reshuffle=False)
        else:
            done = self.after | 'Begin' >> beam.Map(lambda _: 0).with_output_types(int)
        for number in range(1, settings.params.rounds + 1):
            listed = done | f'Round{number}' >> self._list(number)
            done = embedded | f'Votes{number}' >> Vote(settings, self.work_dir, number, listed)
        if settings.unvoted_per_label:
            done |= 'After' >> self._list(settings.params.rounds + 1)
        rows = (
            done
            | 'Corpus' >> beam.FlatMap(corpus, settings, self.work_dir).with_output_types(EvolvedExample)
            | 'KeepExamples' >> beam.Reshuffle()
        )
        sizes = units | 'Units' >> CountUnits(settings.labels)
        no_facts = root | 'NoFacts' >> beam.Create([], reshuffle=False).with_output_types(BatchFacts)
        none = root | 'NoneCounted' >> beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
        return rows, sizes, no_facts, none

    def _list(self, number: int) -> ListTexts:
        return ListTexts(self.settings, self.work_dir, number, self.accelerator)


def corpus(_: int, settings: EvolutionSettings, work_dir: str) -> Iterator[EvolvedExample]:
    """The rows of the corpus, which are chosen once: whoever repeats the step reads the same."""

    def draw() -> str:
        after = settings.params.rounds + 1
        children = vectors = None
        if settings.unvoted_per_label:
            children, vectors = read_candidates(work_dir, after), read_vectors(work_dir, after)
        generations = read_generations(work_dir, settings.params.rounds)
        examples = listing.examples_of(settings, generations, children or (), vectors)
        return json.dumps([dataclasses.asdict(row) for row in examples], ensure_ascii=False)

    for row in json.loads(draw_once(round_path(work_dir, CORPUS), draw)):
        yield EvolvedExample(**row)
