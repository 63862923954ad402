"""Canaries of fine-tuning: gradients of one component each, told by the noisy sums, which stay private.

The released adapter follows from the sums. Losses of sentences under it told nothing, not even of an adapter
that was trained without noise (docs/measured.md).
"""

from collections.abc import Callable

import jax
import numpy as np

from models import batching
from models.audits import gradient_canaries, one_run
from models.audits.canaries import gradient_scores
from models.decoders import family
from models.finetuning.units import Unit
from models.privacy import counts
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.methods.canary_audit import Canaries
from pipeline.methods.fine_tune.run import TuningRun


class TuningCanaries(Canaries[TuningRun]):
    """Gradients of one component each, among those of a run."""

    attack = 'noisy gradients'
    reads = 'restricted'

    def guarantee(self, run: TuningRun) -> one_run.Guarantee:
        if run.card is not None:
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
            q, steps = params.sampling_probability, params.tuning_steps
            return np.array(subsampled.deltas_of_steps(q, z, steps, tuple(epsilons), sigma))

        epsilon = subsampled.epsilon_of_event(params.event, delta)
        return one_run.Guarantee(epsilon=epsilon, delta=delta, curve=curve)

    def scores(
        self,
        run: TuningRun,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        progress: Callable[[str], None],
    ) -> np.ndarray:
        model = run.method.model
        shapes = family.family_of(model).adapter_shapes(model, run.lora_rank)
        size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
        if len(coins) > size:
            raise ValueError(
                f'Expected a number of the adapter for each canary, got canaries={len(coins)}, '
                f'adapter_parameters={size}. Give fewer canaries, or a higher --lora-rank.'
            )
        components = np.random.default_rng([seed, 4]).choice(size, len(coins), replace=False)
        key, present = RunKey.new(), np.flatnonzero(coins)
        units = [
            Unit(unit_hash=batching.unit_hash(key, f'canary {number}'), ordinal=0, label=None, texts=())
            for number in present
        ]
        progress('Adding up gradients')
        sums = gradient_canaries.noisy_components(
            shapes, run.params, key, run.run_id, units, components[present], components
        )
        return gradient_scores(sums, run.params)
