"""Benchmark of what options of DP fine-tuning cost in quality, at one epsilon, on stand-ins for records.

Prints one JSON line. Run from the repository root; it needs the weights of Gemma 3 270M and the records of
`tests.benchmarks.real_records`:

    python -m tests.benchmarks.tuning_options_benchmark
    python -m tests.benchmarks.tuning_options_benchmark --epsilon 1 --arms '{}' '{"mismatch_weight": 0}'

An arm is a JSON object of what differs from the defaults of the command line: settings of
`models.finetuning.settings.TuningSettings`, or another `epsilon`. But for that all arms have the same batches
and noise. Of records held out:

* `loss`: nats a token of a text after the instruction of its own label, the end of a text included;
* `right_label`: the share of texts that are most probable after the instruction of their own label, which is
  what makes a sampled text one of its label;
* `seconds`: wall time of all steps, without compiling the first.

Each is the mean over keys; `standard_error` is of the difference to the first arm over keys, and over texts
where there is one key.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from typing import Any


def main() -> None:
    """Trains every arm under every key, and prints the line."""
    import jax
    import numpy as np

    from models.finetuning import train
    from models.finetuning.settings import TuningSettings
    from models.privacy.randomness import RunKey
    from tests.benchmarks import private_tuning, real_records

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--data', default='trec', choices=sorted(real_records.DATASETS))
    parser.add_argument('--epsilon', type=float, default=3.0)
    parser.add_argument('--arms', nargs='+', type=json.loads, default=[{}, {'mismatch_every': 4}])
    parser.add_argument('--tuning-steps', type=int, default=20)
    parser.add_argument('--expected-batch-size', type=int, default=64)
    parser.add_argument('--learning-rate', type=float, default=3e-3)
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='bfloat16')
    parser.add_argument('--held-out', type=int, default=120)
    parser.add_argument('--keys', type=int, default=1)
    args = parser.parse_args()

    dataset = real_records.DATASETS[args.data]
    records = dataset.train()
    tested = real_records.sample(dataset.held_out(), dataset.labels, args.held_out)

    def settings_of(arm: dict[str, Any]) -> TuningSettings:
        return private_tuning.settings_of(
            dataset, len(records), tuning_steps=args.tuning_steps,
            expected_batch_size=args.expected_batch_size, labelled=True,
            **{'epsilon': args.epsilon, 'dtype': args.dtype, 'learning_rate': args.learning_rate, **arm},
        )  # fmt: skip

    settings = settings_of({})

    # A unit's loss without the term of wrong instructions is that of its text after its label's instruction.
    judge = train.Trainer(dataclasses.replace(settings, mismatch_weight=0.0))
    held_out = judge.encoded(private_tuning.units_of(tested, labelled=True))

    def judged(adapter: Any) -> tuple[np.ndarray, np.ndarray]:
        """Nats a token of each text, and whether its own label makes it most probable."""
        of_labels = np.stack([
            judge.losses(adapter, dataclasses.replace(held_out, labels=np.full_like(held_out.labels, label)))
            for label in range(len(settings.labels))
        ])  # fmt: skip
        own = np.take_along_axis(of_labels, held_out.labels[None], axis=0)[0]
        nats = own * settings.max_example_tokens / held_out.lengths.sum(axis=1)
        return nats, of_labels.argmin(axis=0) == held_out.labels

    members = private_tuning.units_of(records, labelled=True)
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    seconds: dict[str, list[float]] = {}
    multipliers: dict[str, float] = {}
    for arm in args.arms:
        name = json.dumps(arm)
        of_arm = settings_of(arm)
        multipliers[name] = of_arm.params.noise_multiplier
        trainer = train.Trainer(of_arm)
        encoded = trainer.encoded(members)
        for number in range(args.keys):
            key = RunKey(number.to_bytes(32))
            batches = train.Batches.of(members, key, of_arm.run_id, of_arm.params)
            state, taken = trainer.first_state(key), []
            for step, of_step in enumerate(batches.members):
                words = trainer.words(members, of_step, key, step)
                began = time.perf_counter()
                state = jax.block_until_ready(trainer.step(state, encoded, of_step, words, key))
                taken.append(time.perf_counter() - began)
                print(f'{name} key {number} step {step}: {taken[-1]:.1f} s', file=sys.stderr, flush=True)
            # Programs are compiled in the first steps that need them.
            seconds.setdefault(name, []).append(statistics.median(taken) * len(taken))
            found.setdefault(name, []).append(judged(state['adapter']))
            nats, right = found[name][-1]
            print(f'{name} key {number}: {nats.mean():.3f}, {right.mean():.3f}', file=sys.stderr, flush=True)

    first = found[json.dumps(args.arms[0])]
    alone = judged(trainer.first_state(RunKey(bytes(32)))['adapter'])
    print(json.dumps({
        'benchmark': 'tuning_options', 'model': settings.model, 'data': args.data, 'dtype': args.dtype,
        'epsilon': args.epsilon, 'keys': args.keys,
        'tuning_steps': args.tuning_steps, 'expected_batch_size': args.expected_batch_size,
        'held_out': len(tested),
        'model_alone': {'loss': _mean([alone[0]]), 'right_label': _mean([alone[1]])},
        'arms': {
            name: {
                'loss': _mean([nats for nats, _ in of_arm]),
                'right_label': _mean([right for _, right in of_arm]),
                'standard_error': [
                    _standard_error([one[part] * 1.0 - two[part] for one, two in zip(of_arm, first)])
                    for part in (0, 1)
                ],
                'seconds': round(statistics.median(seconds[name]), 1),
                'noise_multiplier': round(multipliers[name], 3),
            }
            for name, of_arm in found.items()
        },
    }))  # fmt: skip


def _mean(of_keys: list[Any]) -> float:
    return round(float(sum(of.mean() for of in of_keys) / len(of_keys)), 3)


def _standard_error(differences: list[Any]) -> float:
    """Of the mean of differences, each of all texts under one key."""
    if len(differences) == 1:
        (of_texts,) = differences
        return round(float(of_texts.std(ddof=1) / len(of_texts) ** 0.5), 3)
    means = [float(of.mean()) for of in differences]
    return round(statistics.stdev(means) / len(means) ** 0.5, 3)


if __name__ == '__main__':
    main()
