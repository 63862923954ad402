"""Embedded units and a list -> the noisy votes of the round, drawn once (METHOD 4e, steps 2 and 3)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems

from models import activity
from models.clustering.similarities import quantized, similarities
from models.evolution.generation import votes_to_json
from models.evolution.settings import EvolutionSettings
from models.privacy import text_votes
from transforms.durable import draw_once, guarded, noise_source
from transforms.evolve.embed import Shard, read_shard
from transforms.evolve.files import list_digest, read_candidates, read_vectors, round_path, votes_name

# Records whose similarities are held at a time: with tens of thousands of candidates a row is long.
_ROWS = 512


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class Vote(beam.PTransform):
    """Shares of embedded units -> the number of the round, once its noisy votes are written.

    A repeated step reads the noise that was drawn: nothing is counted twice.

    Attributes:
        listed: The single number of the round, once its list is written.
    """

    settings: EvolutionSettings
    work_dir: str
    number: int
    listed: beam.PCollection[int]

    def expand(self, shards: beam.PCollection[int]) -> beam.PCollection[int]:
        listed = beam.pvalue.AsSingleton(self.listed)
        return (
            shards
            | 'Count'
            >> beam.ParDo(_CountVotes(self.settings, self.work_dir), listed).with_output_types(bytes)
            # one table of quanta, private
            | 'AddVotes' >> beam.CombineGlobally(add_votes)
            | 'Draw' >> beam.Map(draw_votes, self.settings, self.work_dir, self.number).with_output_types(int)
        )


class _CountVotes(beam.DoFn):
    """share -> the votes of its units, `[G N]` int64 as bytes; private."""

    def __init__(self, settings: EvolutionSettings, work_dir: str) -> None:
        self._settings, self._work_dir = settings, work_dir

    def process(self, shard: int, number: int) -> Iterator[bytes]:
        # Votes that were drawn before a run was resumed stay: nobody adds them up again.
        if not FileSystems.exists(round_path(self._work_dir, votes_name(number))):
            activity.report(activity.Activity(f'{self._settings.stage_of(number)}: counting votes'))
            candidates = read_vectors(self._work_dir, number)
            yield guarded(
                lambda: votes_of_shard(
                    read_shard(self._work_dir, shard), candidates, self._settings
                ).tobytes(),
                expected='every record to vote',
                work_dir=self._work_dir,
                name='vote',
            )


def votes_of_shard(shard: Shard, candidates: np.ndarray, settings: EvolutionSettings) -> np.ndarray:
    """The votes of some units, `[G N]` int64 quanta, without noise: private.

    A unit's votes are a function of its own records and the list (`[N d]` embeddings), since similarities are
    exact (`models.clustering.similarities`).
    """
    vectors, units, groups = shard
    table = np.zeros((len(settings.labels), len(candidates)), np.int64)
    if not len(vectors) or not len(candidates):
        return table
    whole, listed = quantized(vectors), quantized(candidates)
    nearest = np.concatenate([
        text_votes.nearest(similarities(whole[first : first + _ROWS], listed), settings.params.nearest)
        for first in range(0, len(whole), _ROWS)
    ])  # fmt: skip
    # Records of which the embedder knows nothing vote for nothing: every similarity is the same.
    known: np.ndarray = np.any(whole != 0, axis=1)
    # The records of a unit lie beside one another.
    starts = np.flatnonzero(np.diff(units, prepend=-1))
    for first, after in zip(starts, [*starts[1:], len(units)], strict=True):
        records = [nearest[row] for row in range(first, after) if known[row]]
        chosen, quanta = text_votes.votes_of_unit(records)
        table[groups[first], chosen] += quanta
    return table


def add_votes(tables: Iterable[bytes]) -> bytes:
    """The sum of tables; nothing of none."""
    arrays = [np.frombuffer(table, np.int64) for table in tables if table]
    return functools.reduce(np.add, arrays).tobytes() if arrays else b''


def draw_votes(summed: bytes, settings: EvolutionSettings, work_dir: str, number: int) -> int:
    """Draws the noise of a round, the same whoever draws it again, writes the votes, and returns the round.

    The sum is `[G N]` int64 quanta as bytes, private; empty where no unit votes.
    """
    shape = len(settings.labels), len(read_candidates(work_dir, number))

    def draw() -> str:
        sums = np.frombuffer(summed, np.int64).reshape(shape) if summed else np.zeros(shape, np.int64)
        source = noise_source(work_dir, votes_name(number), list_digest(work_dir, number))
        noisy = text_votes.noisy_votes(sums, settings.params.noise_scale, source)
        return votes_to_json(number, settings.labels, noisy, settings.params.noise_scale)

    guarded(
        lambda: draw_once(round_path(work_dir, votes_name(number)), draw),
        expected='the noise of the votes to be drawn',
        work_dir=work_dir,
        name='vote',
    )
    return number
