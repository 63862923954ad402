"""Benchmark of the learning rate of DP fine-tuning, with noise and without, on stand-ins for private records.

Prints one JSON line. Run from the repository root; it needs the weights of Gemma 3 270M and the records of
`tests.benchmarks.real_records`:

    python -m tests.benchmarks.learning_rate_benchmark
    python -m tests.benchmarks.learning_rate_benchmark --data trec --epsilon 3 --rates 0.003 0.01

The records are the questions of customers of a bank, without their labels. `private` are the steps of a run
at this epsilon; `public` as many units a step without noise, as of a warm start. `loss` is nats a token, the
end of a text included, on texts held out: of the model alone, and after the steps at each rate, all under one
key.
"""

import argparse
import json
import sys
from typing import Any


def main() -> None:
    """Trains at each rate, with noise and without, and prints the line."""
    import functools

    import jax
    import numpy as np
    import optax

    from models.finetuning import train
    from models.privacy.randomness import RunKey
    from tests.benchmarks import private_tuning, real_records

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--data', default='banking77', choices=sorted(real_records.DATASETS))
    parser.add_argument('--epsilon', type=float, default=1.0)
    parser.add_argument('--rates', type=float, nargs='+', default=[1e-3, 3e-3, 1e-2])
    parser.add_argument('--tuning-steps', type=int, default=20)
    parser.add_argument('--public-steps', type=int, default=10)
    parser.add_argument('--expected-batch-size', type=int, default=64)
    parser.add_argument('--held-out', type=int, default=200)
    args = parser.parse_args()

    dataset = real_records.DATASETS[args.data]
    records, tested = dataset.train(), real_records.sample(dataset.held_out(), dataset.labels, args.held_out)
    settings = private_tuning.settings_of(
        dataset, len(records), epsilon=args.epsilon, tuning_steps=args.tuning_steps,
        expected_batch_size=args.expected_batch_size, labelled=False, dtype='float32',
    )  # fmt: skip
    params, key = settings.params, RunKey(bytes(32))
    trainer, members = train.Trainer(settings), private_tuning.units_of(records, labelled=False)
    encoded = trainer.encoded(members)
    held_out = trainer.encoded(private_tuning.units_of(tested, labelled=False))
    batches = train.Batches.of(members, key, settings.run_id, params)

    def loss(adapter: Any) -> float:
        # A unit's loss is a sum over T.
        nats = trainer.losses(adapter, held_out).sum() * settings.max_example_tokens
        return round(float(nats / held_out.lengths.sum()), 3)

    def trained(rate: float, steps: int, *, noisy: bool) -> float:
        trainer._optimizer = optax.adam(rate)
        trainer._update = jax.jit(functools.partial(train._update, trainer._optimizer, params))
        state = trainer._before_steps(trainer.first_state(key)['adapter'])
        for step, of_step in enumerate(batches.members[:steps]):
            total = trainer.gradient(state, encoded, of_step, trainer.words(members, of_step, key, step))
            noise = train.noise_of_step(state['adapter'], key, settings.run_id, step, params)
            if not noisy:
                noise = jax.tree.map(np.zeros_like, noise)
            state = trainer.updated(state, total, noise)
        found = loss(state['adapter'])
        print(f'{rate:g} {"private" if noisy else "public"}: {found}', file=sys.stderr, flush=True)
        return found

    line = {
        'benchmark': 'learning_rate', 'data': args.data, 'epsilon': args.epsilon,
        'noise_multiplier': round(params.noise_multiplier, 3), 'tuning_steps': args.tuning_steps,
        'public_steps': args.public_steps,
        'loss': {
            'model': loss(trainer.first_state(key)['adapter']),
            'private': {f'{rate:g}': trained(rate, args.tuning_steps, noisy=True) for rate in args.rates},
            'public': {f'{rate:g}': trained(rate, args.public_steps, noisy=False) for rate in args.rates},
        },
    }  # fmt: skip
    print(json.dumps(line))


if __name__ == '__main__':
    main()
