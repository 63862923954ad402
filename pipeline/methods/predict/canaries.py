"""Canaries of private prediction: what an attacker with the corpus alone tells of them (Meeus et al. 2025).

No noisy value is released beside the text, and no attack on a text is known that reads it all. So this audit
is weak: `audit.leave_one_out` holds each context's influence against its bound, and sees smaller faults.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from models import reference as reference_lib
from models.audits import canaries as made_up
from models.audits import one_run, replay
from models.clustering.centers import ClusterSettings
from models.generate.batch import BatchGenerator
from models.generate.examples import split_examples
from models.privacy import accounting
from models.privacy.randomness import RunKey
from models.records import Batch, Record
from pipeline.canaries import Sabotage
from pipeline.methods import canary_audit
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.predict import audit, mechanism, worker_settings
from pipeline.methods.predict.mechanism import Config
from transforms.predict import load_generator


class PredictionCanaries(CanaryAuditor):
    """Audits votes on tokens by the corpus."""

    def guarantee(self, config: Config) -> one_run.Guarantee:
        # Raises for an aggregate that has no price in advance.
        whole = accounting.compose(map(accounting.curve_of, mechanism.cost(config).values()))

        def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
            weaker = dataclasses.replace(whole, rho=strength**2 * whole.rho)
            return np.array([weaker.delta(float(epsilon)) for epsilon in epsilons])

        delta = config.resolved_delta
        return one_run.Guarantee(epsilon=whole.epsilon(delta), delta=delta, curve=curve)

    def attacks(
        self,
        config: Config,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> tuple[one_run.Attack, ...]:
        if config.method.structure is not None:
            raise ValueError(
                'Expected no structure where canaries are sentences, got a json_schema, regex or '
                'grammar. Audit the run without it: the votes and the noise are the same.'
            )
        settings = worker_settings.generator_settings(config)
        settings.check_prompts(config.input.label_values)
        key = RunKey.new()
        texts = made_up.texts(len(coins), seed, [record.text for record in records])
        canaries = canary_audit.canary_records(texts, canary_audit.labels_of(config, len(coins)), config)
        present = [record for of, is_in in zip(canaries, coins, strict=True) if is_in for record in of]
        progress('Forming the batches')
        plan, batches = audit.form_batches(config, key, [*records, *present])
        progress('Loading the model')
        generator = load_generator(settings)
        corpus: list[str] = []
        for text in _texts(config, settings.reference, generator, plan, batches, key, sabotage, progress):
            corpus += text
        embedder = ClusterSettings(embedder='tfidf').load_embedder()
        return (
            one_run.Attack(
                name='pairs of words',
                reads='released',
                scores=made_up.ngram_scores(texts, corpus),
                present=coins,
            ),
            one_run.Attack(
                name='neighbours',
                reads='released',
                scores=made_up.neighbour_scores(embedder.embed(texts), embedder.embed(corpus)),
                present=coins,
            ),
        )


def _texts(
    config: Config,
    given: reference_lib.Reference | None,
    generator: BatchGenerator,
    plan: Any,
    batches: Sequence[Batch],
    key: RunKey,
    sabotage: Sabotage,
    progress: Callable[[str], None],
) -> Iterator[list[str]]:
    """The texts of every batch, in the run's rounds."""
    two_rounds = config.method.resolved_reference_rounds > 1
    first = reference_lib.first_round(plan) if two_rounds else frozenset()
    done = 0
    released: dict[int, tuple[str, ...]] = {}
    for batch in (batch for batch in batches if batch.batch_id in first):
        done += 1
        progress(f'Decoding batch {done:,} of {len(batches):,}')
        examples = _decoded(generator, batch, key, sabotage, ())
        whole = (example.text for example in examples if reference_lib.is_complete(example))
        group = batch.batch_id.group
        released[group] = (*released.get(group, ()), *whole)
        yield [example.text for example in examples]
    later = None
    if two_rounds:
        later = reference_lib.ReleasedReference.of(released, plan, config.method.reference_size)
    for batch in (batch for batch in batches if batch.batch_id not in first):
        done += 1
        progress(f'Decoding batch {done:,} of {len(batches):,}')
        texts: tuple[str, ...] = () if given is None else given.of_label(batch.label)
        if later is not None:
            texts = later.texts_by_group[batch.batch_id.group]
        yield [example.text for example in _decoded(generator, batch, key, sabotage, texts)]


def _decoded(
    generator: BatchGenerator, batch: Batch, key: RunKey, sabotage: Sabotage, reference: Sequence[str]
) -> Sequence[Any]:
    """The examples of a batch, by the run's mechanism or with the texts of contexts in their place."""
    if sabotage == 'none':
        return generator.generate(batch, key, reference=reference).examples
    case = replay.Case.of(generator, batch, sabotage='paste', reference=reference)
    stream = case.decode(generator.draws(batch, key))
    cut = split_examples(
        stream,
        stop_rule=generator.stop_rule,
        max_example_tokens=generator.params.max_example_tokens,
    )
    texts = generator.writer.texts([example.tokens for example in cut])
    return [_Pasted(text, example.truncated) for text, example in zip(texts, cut, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Pasted:
    """A text of the broken mechanism, as far as anything looks at it."""

    text: str
    truncated: bool
    private_tokens: int = reference_lib.LEAST_TOKENS
    public_tokens: int = 0
