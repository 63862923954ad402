"""Canaries among votes on whole texts (METHOD 4e): each votes for a text of the list that is its own.

The noisy votes are released, so this is the strongest attacker there is: one who knows all other records.
The corpus is a function of these votes, so an attacker with the corpus alone sees less.
"""

import dataclasses
import math
import os
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from models.audits import batches as audit_batches
from models.audits import one_run
from models.audits.canaries import NOISE_LEFT, RETRIES, vote_scores
from models.clustering.embedder import Embedder
from models.clustering.similarities import quantized, similarities
from models.evolution.generation import Candidate, candidates_to_json
from models.evolution.settings import EvolutionSettings
from models.finetuning.units import Row
from models.privacy import text_votes
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.canaries import Sabotage
from pipeline.methods import canary_audit
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.evolve import graph
from pipeline.methods.evolve.run import VotingRun
from transforms.run_files import BATCHES_FOLDER, EMBEDDINGS_FOLDER, ERRORS_FOLDER, ROUNDS_FOLDER, RUN, RUN_KEY


class TextVotingCanaries(CanaryAuditor[VotingRun]):
    """Audits votes on texts."""

    def guarantee(self, run: VotingRun) -> one_run.Guarantee:
        params, delta = run.params, run.delta
        # The noise is a Gaussian on the whole multiples of a quantum, thousands of which make its scale.
        mu = math.sqrt(2 * params.rho)
        return one_run.Guarantee(
            epsilon=params.epsilon(delta),
            delta=delta,
            curve=lambda strength, epsilons: one_run.gaussian_deltas(strength * mu, epsilons),
        )

    def attacks(
        self,
        run: VotingRun,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> tuple[one_run.Attack, ...]:
        progress('Loading the embedder')
        settings = graph.prepare(run)
        with tempfile.TemporaryDirectory() as work_dir:
            rounds = _Rounds(settings, work_dir, sabotage, progress)
            rounds.list_texts(1)
            canaries = rounds.canaries(run, len(coins))
            texts = [of[0].text for of in canaries]
            present = [record for of, is_in in zip(canaries, coins, strict=True) if is_in for record in of]
            if sabotage == 'own-text':
                rounds.add_to_list([record.text for record in present])
            rounds.embed(records, present)
            votes = np.zeros(len(coins))
            for number in range(1, settings.params.rounds + 1):
                if number > 1:
                    rounds.list_texts(number)
                votes += rounds.scores(canaries, number)
            listed = rounds.listed_texts()
        is_listed = np.array([text in listed for text in texts], np.float64)
        return (
            one_run.Attack(name='noisy votes', reads='released', scores=votes, present=coins),
            one_run.Attack(name='listed texts', reads='released', scores=is_listed, present=coins),
        )


class _Rounds:
    """One run of the rounds, by the functions that a run's steps call; only Beam is left out."""

    def __init__(
        self,
        settings: EvolutionSettings,
        work_dir: str,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> None:
        from transforms.durable import make_folder, write_file, write_key

        noise = NOISE_LEFT.get(sabotage, 1.0) * settings.params.noise_scale
        self._settings = dataclasses.replace(
            settings, params=dataclasses.replace(settings.params, noise_scale=noise)
        )
        self._work_dir, self._sabotage, self._progress = work_dir, sabotage, progress
        self._key = RunKey.new()
        self._embedder: Embedder = settings.embedder.load_embedder()
        for folder in (ROUNDS_FOLDER, BATCHES_FOLDER, EMBEDDINGS_FOLDER, ERRORS_FOLDER):
            make_folder(os.path.join(work_dir, folder))
        write_key(work_dir, self._key)
        # The key is of this audit alone: there is no other run to be told from.
        write_file(os.path.join(work_dir, RUN), b'{}')

    def list_texts(self, number: int) -> None:
        """Samples and writes the list of a round."""
        from transforms.evolve import rounds as steps

        self._progress(f'{self._settings.stage_of(number)}: sampling and listing texts')
        steps.sample_here(self._settings, self._work_dir, number)
        steps.write_list(self._settings, self._work_dir, number, self._embedder)

    def add_to_list(self, texts: Sequence[str]) -> None:
        """Breaks the first list: texts of records stand among the candidates."""
        from transforms.evolve import files

        names = [files.candidates_name(1), os.path.basename(files.vectors_path(self._work_dir, 1))]
        listed = files.read_candidates(self._work_dir, 1)
        vectors = files.read_vectors(self._work_dir, 1)
        own = tuple(
            Candidate(name=f'9999-000000-{place:04d}', text=text, label=None)
            for place, text in enumerate(texts)
        )
        vectors = np.concatenate([vectors, self._embedder.embed(texts)])
        contents = candidates_to_json(1, (*listed, *own)).encode(), files.vectors_to_bytes(vectors)
        for name, content in zip(names, contents, strict=True):
            with open(files.round_path(self._work_dir, name), 'wb') as file:
                file.write(content)

    def canaries(self, run: VotingRun, count: int) -> list[list[Record]]:
        """Canaries whose texts are those of the list, one for each text and label, with a number behind.

        Raises:
            ValueError: There are fewer texts.
        """
        from transforms.evolve import files

        labels, listed = self._settings.labels, files.read_candidates(self._work_dir, 1)
        if count > len(labels) * len(listed):
            raise ValueError(
                f'Expected a text of the first list and a label of its own for each canary, got canaries='
                f'{count}, labels={len(labels)}, texts={len(listed)}. Give fewer canaries, or more texts.'
            )
        texts = [f'{listed[number // len(labels)].text} {number:06d}' for number in range(count)]
        return canary_audit.canary_records(texts, canary_audit.labels_of(run, count), run)

    def embed(self, records: list[Record], present: list[Record]) -> None:
        """Embeds the units, those of the input apart."""
        from transforms.durable import write_file
        from transforms.evolve import embed, files

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
        from transforms.evolve import embed, files, vote

        self._progress(f'{self._settings.stage_of(number)}: counting votes')
        listed = files.read_vectors(self._work_dir, number)
        others, own = (
            vote.votes_of_shard(embed.read_shard(self._work_dir, shard), listed, self._settings)
            for shard in (0, 1)
        )
        tables = [others, own] * (2 if self._sabotage == 'counted-twice' else 1)
        summed = vote.add_votes([table.tobytes() for table in tables])
        noisy = np.mean([
            self._drawn(summed, number)
            for _ in range(RETRIES if self._sabotage == 'noise-again' else 1)
        ], axis=0)  # fmt: skip
        unknown = noisy - text_votes.in_votes(others)
        found = np.zeros(len(canaries))
        groups = np.array([self._settings.labels.index(of[0].label) for of in canaries])
        for group, row in enumerate(unknown):
            own_group = np.flatnonzero(groups == group)
            votes_of = self._votes_of([canaries[place] for place in own_group], listed)
            found[own_group] = vote_scores(row, votes_of, self._settings.params.noise_scale)
        return found

    def _drawn(self, summed: bytes, number: int) -> np.ndarray:
        """The released votes of a round, `[G N]`; another release where there is one."""
        from transforms.durable import write_key
        from transforms.evolve import files, vote

        path = files.round_path(self._work_dir, files.votes_name(number))
        if os.path.exists(path):
            os.remove(path)
        if self._sabotage == 'noise-again':
            # As if noise came from the operating system: under one key every retry draws the same.
            os.remove(os.path.join(self._work_dir, RUN_KEY))
            write_key(self._work_dir, RunKey.new())
        vote.draw_votes(summed, self._settings, self._work_dir, number)
        return files.read_generation(self._work_dir, number).votes

    def _votes_of(self, canaries: list[list[Record]], listed: np.ndarray) -> np.ndarray:
        """What each canary adds to the row of its label, if it is in: `[N m]`."""
        found = np.zeros((len(listed), len(canaries)))
        vectors = quantized(self._embedder.embed([of[0].text for of in canaries]))
        nearest = text_votes.nearest(similarities(vectors, quantized(listed)), self._settings.params.nearest)
        for column, (of, row) in enumerate(zip(canaries, nearest, strict=True)):
            if vectors[column].any():
                chosen, quanta = text_votes.votes_of_unit([row] * len(of))
                found[chosen, column] = text_votes.in_votes(quanta)
        return found

    def listed_texts(self) -> set[str]:
        """All texts of the last list, which holds those before it."""
        from transforms.evolve import files

        return {each.text for each in files.read_candidates(self._work_dir, self._settings.params.rounds)}
