"""Benchmark of DP-Adam with the noise's variance in its second moment and without it, on invented records.

Prints one JSON line. Run from the repository root; it needs nothing but the bundled model:

    python -m tests.benchmarks.noise_variance_benchmark
    python -m tests.benchmarks.noise_variance_benchmark --epsilon 3 --rates 0.01 --floors 0.1 --seeds 1

The records are messages of `launch.demo.records`. `loss` is nats a token, the end of a text included, on
messages held out: of the model alone, and after all private steps at each learning rate, with the variance in
it (`dp-adam`) and without it at each floor. The mean over keys, and its standard error.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any


def main() -> None:
    """Trains at each rate and each floor, and prints the line."""
    import dataclasses

    from launch.demo import records as demo
    from models import bundled
    from models.decoders import family
    from models.finetuning import train, units
    from models.finetuning.settings import TuningSettings
    from models.privacy.accounting import subsampled
    from models.privacy.gradients import TuningParams
    from models.privacy.randomness import RunKey
    from models.prompt_templates import PRESETS

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--epsilon', type=float, default=3.0)
    parser.add_argument('--records', type=int, default=5000)
    parser.add_argument('--rates', type=float, nargs='+', default=[3e-3, 1e-2])
    parser.add_argument('--floors', type=float, nargs='+', default=[0.03, 0.1, 0.3])
    parser.add_argument('--tuning-steps', type=int, default=60)
    parser.add_argument('--expected-batch-size', type=int, default=64)
    parser.add_argument('--lora-rank', type=int, default=4)
    parser.add_argument('--held-out', type=int, default=300)
    parser.add_argument('--seeds', type=int, default=2)
    args = parser.parse_args()

    files = family.family_of(bundled.MODEL).known_files(bundled.MODEL)
    assert files is not None
    made = demo.demo_records(args.records + args.held_out)
    delta = args.records**-1.1
    noise_multiplier = subsampled.solve_noise_multiplier(
        sampling_probability=args.expected_batch_size / args.records, steps=args.tuning_steps,
        epsilon=args.epsilon, delta=delta,
    )  # fmt: skip
    settings = TuningSettings(
        run_id='benchmark',
        params=TuningParams(
            units=float(args.records), expected_batch_size=args.expected_batch_size,
            tuning_steps=args.tuning_steps, clip_norm=1.0, noise_multiplier=noise_multiplier,
        ),
        labels=demo.LABELS, model=bundled.MODEL, checkpoint=str(files.checkpoint),
        tokenizer=str(files.tokenizer), dtype='float32', micro_batch_size=16, max_prompt_tokens=32,
        max_example_tokens=80, template=PRESETS['document'], lora_rank=args.lora_rank,
    )  # fmt: skip
    everything = units.in_order(
        (number.to_bytes(16), record['label'], [record['text']]) for number, record in enumerate(made)
    )
    members, rest = everything[: args.records], everything[args.records :]

    def loss(trainer: train.Trainer, adapter: Any) -> float:
        # A unit's loss is a sum over T; wrong instructions are left out.
        held_out = trainer.encoded(rest)
        nats = trainer.losses(adapter, held_out).sum() * settings.max_example_tokens
        return float(nats / held_out.lengths.sum())

    scorer = train.Trainer(dataclasses.replace(settings, mismatch_weight=0.0))
    found: dict[str, dict[str, float | None]] = {}
    started = time.process_time()
    for rate in args.rates:
        for floor in (None, *args.floors):
            own = dataclasses.replace(settings, learning_rate=rate, variance_floor=floor)
            trainer = train.Trainer(own)
            values = [
                loss(scorer, trainer.train(members, RunKey(seed.to_bytes(32)))) for seed in range(args.seeds)
            ]
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
            name = f'{rate:g} dp-adam' if floor is None else f'{rate:g} floor {floor:g}'
            found[name] = {
                'mean': round(statistics.fmean(values), 3),
                'standard_error': None if error is None else round(error, 3),
            }
            print(f'{name}: {found[name]}', file=sys.stderr, flush=True)
    first = scorer.first_state(RunKey(bytes(32)))['adapter']
    line = {
        'benchmark': 'noise_variance', 'records': args.records, 'epsilon': args.epsilon,
        'noise_multiplier': round(noise_multiplier, 3), 'tuning_steps': args.tuning_steps,
        'expected_batch_size': args.expected_batch_size, 'seeds': args.seeds,
        'loss': {'model': round(loss(scorer, first), 3), **found},
        'processor_seconds': round(time.process_time() - started),
    }  # fmt: skip
    print(json.dumps(line))


if __name__ == '__main__':
    main()
