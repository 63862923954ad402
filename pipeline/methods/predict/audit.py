"""Canaries of private prediction: what an attacker with the corpus alone tells of them (Meeus et al. 2025).

No noisy value is released beside the text, and no attack on a text is known that reads it all. So this audit
is weak.
"""

import collections
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from models import reference as reference_lib
from models.audits import batches as audit_batches
from models.audits import canaries as made_up
from models.audits import one_run
from models.batch_plan import BatchPlan
from models.generate.batch import BatchGenerator
from models.privacy import counts
from models.privacy.randomness import RunKey
from models.records import Batch, Record, SyntheticExample
from pipeline.methods import canary_audit, workers
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.predict import graph
from pipeline.methods.predict.run import PredictionRun
from transforms import cluster, run_files
from transforms.durable import write_file, write_key
from transforms.plan import draw_plan
from transforms.predict import load_generator


class PredictionCanaries(Canaries[PredictionRun]):
    """Sentences among the contexts of votes on tokens."""

    attack = 'pairs of words'
    reads = 'released'

    def guarantee(self, run: PredictionRun) -> one_run.Guarantee:
        if run.method.structure is not None:
            raise ValueError(
                'Expected no structure where canaries are sentences, got a json_schema or regex. Audit the '
                'run without it: the votes and the noise are the same.'
            )
        # Raises for an aggregate that has no price in advance.
        whole = run.cost.curve

        def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
            weaker = dataclasses.replace(whole, rho=strength**2 * whole.rho)
            return np.array([weaker.delta(float(epsilon)) for epsilon in epsilons])

        return one_run.Guarantee(epsilon=whole.epsilon(run.delta), delta=run.delta, curve=curve)

    def scores(
        self,
        run: PredictionRun,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        progress: Callable[[str], None],
    ) -> np.ndarray:
        settings = graph.generator_settings(run)
        settings.check_prompts(run.input.label_values)
        key = RunKey.new()
        texts = made_up.texts(len(coins), seed, [record.text for record in records])
        canaries = canary_audit.canary_records(texts, run)
        present = [
            record for canary, is_in in zip(canaries, coins, strict=True) if is_in for record in canary
        ]
        progress('Forming the batches')
        plan, batches = form_batches(run, key, [*records, *present])
        progress('Loading the model')
        generator = load_generator(settings)
        examples = _examples(run, settings.reference, generator, plan, batches, key, progress)
        return made_up.ngram_scores(texts, [example.text for example in examples])


def _examples(
    run: PredictionRun,
    reference: reference_lib.Reference | None,
    generator: BatchGenerator,
    plan: BatchPlan,
    batches: Sequence[Batch],
    key: RunKey,
    progress: Callable[[str], None],
) -> Iterator[SyntheticExample]:
    """The examples of all batches, in the run's rounds."""
    two_rounds = run.method.decoding_rounds > 1
    first = reference_lib.first_round(plan) if two_rounds else frozenset()
    ordered = sorted(batches, key=lambda batch: batch.batch_id not in first)
    released: dict[int, tuple[str, ...]] = {}
    later = None
    for done, batch in enumerate(ordered, 1):
        progress(f'Decoding batch {done:,} of {len(batches):,}')
        texts: tuple[str, ...] = () if reference is None else reference.of_label(batch.label)
        group, is_first = batch.batch_id.group, batch.batch_id in first
        if two_rounds and not is_first:
            later = later or reference_lib.ReleasedReference.of(released, plan, run.method.reference_size)
            texts = later.texts_by_group[group]
        examples = generator.generate(batch, key, reference=() if is_first else texts).examples
        if is_first:
            whole = (example.text for example in examples if reference_lib.is_complete(example))
            released[group] = (*released.get(group, ()), *whole)
        yield from examples


def form_batches(run: PredictionRun, key: RunKey, records: Sequence[Record]) -> tuple[BatchPlan, list[Batch]]:
    """The plan and all batches of the records, in memory, with noise and hashes of the audit's own key.

    The same functions as in a run decide where a record goes; only Beam is left out.
    """
    labels, params = run.input.label_values, run.params
    clustering, centers, rho = None, None, run.method.count_rho
    with tempfile.TemporaryDirectory() as folder:
        write_key(folder, key)
        # The key is of this audit alone: there is no other run to be told from.
        write_file(os.path.join(folder, run_files.RUN), b'{}')
        if run.method.clusters is not None:
            centers_rho, rho = counts.split_rho(run.method.clustering_rho)
            clusterer = graph.cluster_settings(run).build()
            centers = clusterer.centers.count
            records = cluster.embed_records(
                records, clusterer.embedder.embed, clusterer.centers, workers.text_limit(run.method)
            )
            clustering = cluster.draw_clustering(
                _true_counts(audit_batches.placements(records, labels, params, key), labels, centers),
                folder,
                labels=labels,
                centers=centers,
                kept=run.method.clusters,
                rho=centers_rho,
            )
            records = cluster.recluster(records, clusterer.centers, labels, clustering)
        placed = audit_batches.placements(records, labels, params, key)
        if run.batch_plan is not None:
            plan = run.batch_plan
        else:
            records_per_count = params.examples_per_context if params.unit == 'example' else 1
            plan = draw_plan(
                _true_counts(placed, labels, centers),
                folder,
                labels=labels,
                rho=rho,
                contexts_per_batch=params.batch_size * records_per_count,
                clustering=clustering,
            )
    return plan, audit_batches.batches_of(placed, plan, params, key)


def _true_counts(
    placed: Sequence[audit_batches.Placement], labels: Sequence[str | None], centers: int | None
) -> list[int]:
    """Counts of each label, or of every centre of each label; private."""
    sizes = collections.Counter((label, cluster) for _, label, cluster, _ in placed)
    clusters = [None] if centers is None else range(centers)
    return [sizes[label, cluster] for label in labels for cluster in clusters]
