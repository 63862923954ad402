"""Benchmark of a warm start: what DP fine-tuning learns of real questions with public ones before it.

Prints one JSON line. Run from the repository root; it needs the weights of Gemma 3 270M and the records of
`tests.benchmarks.real_records`:

    python -m tests.benchmarks.warm_start_benchmark
    python -m tests.benchmarks.warm_start_benchmark --epsilon 3 --seeds 1 --warm-steps 100

The records are the questions of TREC, without their labels; the public texts are what customers ask a bank
(Banking77). Both arms take the same private steps under the same keys: `cold` from the first adapter, `warm`
from the one that public texts trained. `loss` is the mean of the training loss over the 500 test questions:
of the model alone, of the warm start alone, and of each arm, with its standard error over keys. Steps and
sizes were chosen before any of it was seen; the rates were not.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any


def main() -> None:
    """Trains both arms for each key, and prints the line."""
    import numpy as np

    from models.decoders import family
    from models.finetuning import train, units
    from models.finetuning.settings import TuningSettings
    from models.privacy.accounting import subsampled
    from models.privacy.gradients import TuningParams
    from models.privacy.randomness import RunKey
    from models.prompt_templates import PRESETS
    from tests.benchmarks import real_records

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--epsilon', type=float, default=1.0)
    parser.add_argument('--tuning-steps', type=int, default=20)
    parser.add_argument('--warm-steps', type=int, default=20)
    parser.add_argument('--expected-batch-size', type=int, default=64)
    parser.add_argument('--learning-rate', type=float, default=3e-3)
    parser.add_argument('--warm-learning-rate', type=float, default=1e-3)
    parser.add_argument('--seeds', type=int, default=2)
    args = parser.parse_args()

    model, dataset = 'gemma3-270m', real_records.DATASETS['trec']
    files = family.family_of(model).known_files(model)
    assert files is not None
    records, tested = dataset.train(), dataset.held_out()
    public = real_records.DATASETS['banking77'].train()
    delta, probability = len(records) ** -1.1, args.expected_batch_size / len(records)
    noise_multiplier = subsampled.solve_noise_multiplier(
        sampling_probability=probability, steps=args.tuning_steps, epsilon=args.epsilon, delta=delta
    )
    settings = TuningSettings(
        run_id='benchmark',
        params=TuningParams(
            units=float(len(records)), expected_batch_size=args.expected_batch_size,
            tuning_steps=args.tuning_steps, clip_norm=1.0, noise_multiplier=noise_multiplier,
        ),
        labels=(None,), model=model, checkpoint=str(files.checkpoint), tokenizer=str(files.tokenizer),
        dtype='bfloat16', micro_batch_size=4, max_prompt_tokens=dataset.max_prompt_tokens,
        max_example_tokens=32, template=PRESETS['document'], text_name='Question',
        corpus_description=dataset.description, lora_rank=8, learning_rate=args.learning_rate,
        warm_learning_rate=args.warm_learning_rate,
        warm_start=tuple((None, text) for _, text in public), warm_steps=args.warm_steps,
    )  # fmt: skip

    def rows(texts: list[tuple[str, str]]) -> list[units.Unit]:
        return units.in_order((number.to_bytes(16), None, [text]) for number, (_, text) in enumerate(texts))

    trainer = train.Trainer(settings)
    members = rows(records)
    encoded, held_out = trainer.encoded(members), trainer.encoded(rows(tested))

    def loss(adapter: Any) -> float:
        return float(trainer.losses(adapter, held_out).mean())

    def private_steps(state: dict[str, Any], key: RunKey) -> Any:
        batches = train.Batches.of(members, key, settings.run_id, settings.params)
        for step, of_step in enumerate(batches.members):
            words = trainer.words(members, of_step, key, step)
            state = trainer.step(state, encoded, of_step, words, key)
        return state['adapter']

    found: dict[str, list[float]] = {'model': [], 'warm start': [], 'cold': [], 'warm': []}
    seconds = time.process_time()
    for seed in range(args.seeds):
        key = RunKey(seed.to_bytes(32))
        first = trainer.first_state(key)
        warmed = trainer.warmed(first)
        for name, adapter in (
            ('model', first['adapter']), ('warm start', warmed['adapter']),
            ('cold', private_steps(first, key)), ('warm', private_steps(warmed, key)),
        ):  # fmt: skip
            found[name].append(loss(adapter))
            print(f'{seed} {name}: {found[name][-1]:.3f}', file=sys.stderr)
    line = {
        'benchmark': 'warm_start', 'epsilon': args.epsilon, 'delta': delta, 'seeds': args.seeds,
        'tuning_steps': args.tuning_steps, 'warm_steps': args.warm_steps,
        'noise_multiplier': round(noise_multiplier, 3),
        'loss': {name: round(statistics.fmean(values), 3) for name, values in found.items()},
        'standard_error': {
            name: round(float(np.std(values, ddof=1) / len(values) ** 0.5), 3) if len(values) > 1 else None
            for name, values in found.items()
        },
        'processor_seconds': round(time.process_time() - seconds),
    }  # fmt: skip
    print(json.dumps(line))


if __name__ == '__main__':
    main()
