"""Canaries among votes on whole texts (METHOD 4e): each votes for a text of the list that is its own.

The noisy votes are released, so this is the strongest attacker there is: one who knows all other records.
The corpus is a function of these votes, so an attacker with the corpus alone sees less.
"""

import math
import os
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting.pld import privacy_loss_mechanism

from models.audits import batches as audit_batches
from models.audits import one_run
from models.audits.canaries import vote_scores
from models.clustering.embedder import Embedder
from models.clustering.similarities import quantized, similarities
from models.evolution.settings import EvolutionSettings
from models.finetuning.units import Row
from models.privacy import text_votes
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.methods import canary_audit
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.evolve import graph
from pipeline.methods.evolve.run import VotingRun
from transforms.durable import make_folder, write_file, write_key
from transforms.evolve import embed, files, rounds, vote
from transforms.run_files import BATCHES_FOLDER, EMBEDDINGS_FOLDER, ERRORS_FOLDER, ROUNDS_FOLDER, RUN

# Log of the odds beside which no other counts.
_SURE = 1e6


class TextVotingCanaries(Canaries[VotingRun]):
    """Texts that vote for a text of the list each."""

    attack = 'noisy votes and lists'
    reads = 'released'

    def guarantee(self, run: VotingRun) -> one_run.Guarantee:
        params, delta = run.params, run.delta
        # The noise is a Gaussian on the whole multiples of a quantum, thousands of which make its scale.
        mu = math.sqrt(2 * params.rho)

        def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
            losses = privacy_loss_mechanism.GaussianPrivacyLoss(1 / (strength * mu))
            return np.asarray(losses.get_delta_for_epsilon(epsilons))

        return one_run.Guarantee(epsilon=params.epsilon(delta), delta=delta, curve=curve)

    def scores(
        self,
        run: VotingRun,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        progress: Callable[[str], None],
    ) -> np.ndarray:
        progress('Loading the embedder')
        settings = graph.prepare(run)
        with tempfile.TemporaryDirectory() as work_dir:
            voting = _Rounds(settings, work_dir, progress)
            voting.list_texts(1)
            canaries = voting.canaries(run, len(coins))
            present = [
                record for canary, is_in in zip(canaries, coins, strict=True) if is_in for record in canary
            ]
            voting.embed(records, present)
            scores = np.zeros(len(coins))
            for number in range(1, settings.params.rounds + 1):
                if number > 1:
                    voting.list_texts(number)
                scores += voting.scores(canaries, number)
            listed = voting.listed_texts()
        # Nobody else has the text of a canary: the attacker who reads it is sure.
        return scores + np.array([_SURE * (canary[0].text in listed) for canary in canaries])


class _Rounds:
    """One run of the rounds, by the functions that a run's steps call; only Beam is left out."""

    def __init__(self, settings: EvolutionSettings, work_dir: str, progress: Callable[[str], None]) -> None:
        self._settings, self._work_dir, self._progress = settings, work_dir, progress
        self._key = RunKey.new()
        self._embedder: Embedder = settings.embedder.load_embedder()
        for folder in (ROUNDS_FOLDER, BATCHES_FOLDER, EMBEDDINGS_FOLDER, ERRORS_FOLDER):
            make_folder(os.path.join(work_dir, folder))
        write_key(work_dir, self._key)
        # The key is of this audit alone: there is no other run to be told from.
        write_file(os.path.join(work_dir, RUN), b'{}')

    def list_texts(self, number: int) -> None:
        self._progress(f'{self._settings.stage_of(number)}: sampling and listing texts')
        rounds.sample_here(self._settings, self._work_dir, number)
        rounds.write_list(self._settings, self._work_dir, number, self._embedder)

    def canaries(self, run: VotingRun, count: int) -> list[list[Record]]:
        """Canaries whose texts are those of the list, one for each text and label, with a number behind."""
        labels, listed = self._settings.labels, files.read_candidates(self._work_dir, 1)
        if count > len(labels) * len(listed):
            raise ValueError(
                f'Expected a text of the first list and a label of its own for each canary, got canaries='
                f'{count}, labels={len(labels)}, texts={len(listed)}. Give fewer canaries, or more texts.'
            )
        texts = [f'{listed[number // len(labels)].text} {number:06d}' for number in range(count)]
        return canary_audit.canary_records(texts, run)

    def embed(self, records: list[Record], present: list[Record]) -> None:
        self._progress('Embedding records')
        for shard, of_shard in enumerate((records, present)):
            data = embed.embedded(self._rows(of_shard), self._settings.labels, self._embedder)
            write_file(files.shard_path(self._work_dir, shard), data)

    def _rows(self, records: Sequence[Record]) -> list[Row]:
        placed = audit_batches.placements(records, self._settings.labels, self._settings.params, self._key)
        return [(digest, label, texts) for digest, label, _, texts in placed]

    def scores(self, canaries: list[list[Record]], number: int) -> np.ndarray:
        """Votes of a round, with their noise, and how much of its own vote each canary finds in them, `[m]`.

        The attacker knows the other records, and expects half of the vote of every other canary.
        """
        self._progress(f'{self._settings.stage_of(number)}: counting votes')
        listed = files.read_vectors(self._work_dir, number)
        others, votes_of_own = (
            vote.votes_of_shard(embed.read_shard(self._work_dir, shard), listed, self._settings)
            for shard in (0, 1)
        )
        summed = vote.add_votes([others.tobytes(), votes_of_own.tobytes()])
        vote.draw_votes(summed, self._settings, self._work_dir, number)
        noisy = files.read_generation(self._work_dir, number).votes
        unknown = noisy - text_votes.in_votes(others)
        scores = np.zeros(len(canaries))
        groups = np.array([self._settings.labels.index(canary[0].label) for canary in canaries])
        for group, row in enumerate(unknown):
            own_group = np.flatnonzero(groups == group)
            votes_of = self._votes_of([canaries[place] for place in own_group], listed)
            scores[own_group] = vote_scores(row, votes_of, self._settings.params.noise_scale)
        return scores

    def _votes_of(self, canaries: list[list[Record]], listed: np.ndarray) -> np.ndarray:
        """The votes that each canary adds to the row of its label, if it is in: `[N m]`."""
        votes = np.zeros((len(listed), len(canaries)))
        vectors = quantized(self._embedder.embed([canary[0].text for canary in canaries]))
        nearest = text_votes.nearest(similarities(vectors, quantized(listed)), self._settings.params.nearest)
        for column, (canary, row) in enumerate(zip(canaries, nearest, strict=True)):
            if vectors[column].any():
                chosen, quanta = text_votes.votes_of_unit([row] * len(canary))
                votes[chosen, column] = text_votes.in_votes(quanta)
        return votes

    def listed_texts(self) -> set[str]:
        return {each.text for each in files.read_candidates(self._work_dir, self._settings.params.rounds)}
