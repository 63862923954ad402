"""Canaries of fine-tuning: texts, told by the released adapter, and gradients, told by what stays private."""

from collections.abc import Callable
from typing import cast

import jax
import numpy as np

from models.audits import batches as audit_batches
from models.audits import canaries as made_up
from models.audits import gradient_canaries, one_run
from models.audits.gradient_canaries import CanaryUnit, TuningSabotage
from models.decoders import family
from models.finetuning.units import Unit, in_order
from models.privacy import counts
from models.privacy.accounting import subsampled
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.canaries import Sabotage
from pipeline.methods import canary_audit
from pipeline.methods.canary_audit import CanaryAuditor
from pipeline.methods.fine_tune import graph
from pipeline.methods.fine_tune.run import TuningRun


class TuningCanaries(CanaryAuditor[TuningRun]):
    """Audits fine-tuning. Of four canaries three are gradients, and one is a text."""

    def guarantee(self, run: TuningRun) -> one_run.Guarantee:
        if run.method.adapter is not None:
            raise ValueError(
                f'Expected a run that trains, got adapter={run.method.adapter!r}. Texts of a released '
                'adapter cost nothing: leave it out.'
            )
        params, delta = run.params, run.delta
        rho = params.label_mix_rho
        sigma = None if rho is None else counts.gaussian_scale(rho)

        def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
            # Nobody looks at what weaker noise than a sixteenth would give: the answer is beyond any audit.
            z = params.noise_multiplier / min(strength, 16.0)
            found = subsampled.deltas_of_steps(
                params.sampling_probability, z, params.tuning_steps, tuple(epsilons), sigma
            )
            return np.array(found)

        return one_run.Guarantee(
            epsilon=subsampled.epsilon_of_event(params.event, delta), delta=delta, curve=curve
        )

    def attacks(
        self,
        run: TuningRun,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> tuple[one_run.Attack, ...]:
        progress('Loading the model')
        settings = graph.prepare(run)
        shapes = family.family_of(settings.model).adapter_shapes(settings.model, settings.lora_rank)
        size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
        pulling = len(coins) * 3 // 4
        if pulling > size:
            raise ValueError(
                'Expected a number of the adapter for each canary that is a gradient, got canaries='
                f'{len(coins)}, of which three in four are, adapter_parameters={size}. Give fewer '
                'canaries, or a higher --lora-rank.'
            )
        rng = np.random.default_rng([seed, 4])
        components = rng.choice(size, pulling, replace=False)
        texts = made_up.texts(len(coins) - pulling, seed, [record.text for record in records])
        labels = canary_audit.labels_of(run, len(coins))
        own = canary_audit.canary_records([''] * pulling + texts, labels, run)
        key = RunKey.new()
        # Rows of the file: canaries that are left out have theirs too.
        rows = rng.permutation(len(records) + len(coins))
        # Of each canary, in their order.
        units = [_units_of(run, settings.params, of, key)[0] for of in own]
        others = _units_of(run, settings.params, records, key)
        progress('Fine-tuning with canaries')
        trained = gradient_canaries.train_with_canaries(
            settings,
            key,
            [
                *(CanaryUnit(unit=unit, component=None, row=int(rows[len(coins) + place]))
                  for place, unit in enumerate(others)),
                *(CanaryUnit(unit=units[place],
                             component=int(components[place]) if place < pulling else None,
                             row=int(rows[place]))
                  for place in np.flatnonzero(coins)),
            ],
            components,
            units[pulling:],
            cast(TuningSabotage, sabotage),
            len(rows),
        )  # fmt: skip
        params = settings.params
        of_gradients, of_texts = coins[:pulling], coins[pulling:]
        return (
            one_run.Attack(
                name='losses of texts',
                reads='released',
                scores=trained.losses_before - trained.losses_after,
                present=of_texts,
            ),
            one_run.Attack(
                name='noisy gradients',
                reads='restricted',
                scores=gradient_canaries.gradient_scores(trained.components, params),
                present=of_gradients,
            ),
            one_run.Attack(
                name='gradients by row',
                reads='restricted',
                scores=gradient_canaries.piece_scores(trained.components, rows[:pulling], len(rows), params),
                present=of_gradients,
            ),
        )


def _units_of(run: TuningRun, params: TuningParams, records: list[Record], key: RunKey) -> list[Unit]:
    placed = audit_batches.placements(records, run.input.label_values, params, key)
    return in_order((digest, label, texts) for digest, label, _, texts in placed)
