"""Benchmark of a step of DP fine-tuning beside a loop of jax_privacy's own parts, on one model and batch.

Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.tuning_benchmark
    python -m tests.benchmarks.tuning_benchmark --model gemma3-270m --expected-batch-size 8 --steps 2

Both train the same factors on the same loss (FT's equation 4, one wrong instruction) of the demo's messages,
with DP-Adam. Ours is `models.finetuning.train.Trainer`: batches of any size, noise of the run key. The
other is written as the library shows it: one compiled step of `clipped_grad` with a micro-batch,
`gaussian_privatizer` and optax, on a batch padded to a multiple of the micro-batch. Steps alternate; medians
of seconds. What each compiled program holds beside its arguments is as XLA counts it. Sampling is the time
to choose the batches of all steps: by keyed coins, and by `CyclicPoissonSampling`.

Aim: ours is no slower, `ratio` <= 1.
"""

import argparse
import json
import statistics
import time
from typing import Any


def main() -> None:
    """Runs both, and prints the line."""
    import jax
    import jax.numpy as jnp
    import jax_privacy
    import numpy as np
    import optax
    from jax_privacy import batch_selection, noise_addition

    from launch.demo import records
    from models.decoders import family
    from models.finetuning import loss, train, units
    from models.finetuning.settings import TuningSettings
    from models.privacy.gradients import TuningParams
    from models.privacy.randomness import RunKey
    from models.prompt_templates import PRESETS

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--model', default='bundled')
    parser.add_argument('--expected-batch-size', type=int, default=64)
    parser.add_argument('--micro-batch-size', type=int, default=16)
    parser.add_argument('--max-example-tokens', type=int, default=64)
    parser.add_argument('--steps', type=int, default=6)
    args = parser.parse_args()

    own = family.family_of(args.model)
    files = own.known_files(args.model)
    size, units_of_all = args.expected_batch_size, 64 * args.expected_batch_size
    settings = TuningSettings(
        run_id='benchmark',
        params=TuningParams(
            units=float(units_of_all), expected_batch_size=size, tuning_steps=args.steps, clip_norm=1.0,
            noise_multiplier=0.7,
        ),
        labels=records.LABELS, model=args.model, checkpoint=str(files.checkpoint),
        tokenizer=str(files.tokenizer), dtype='float32', micro_batch_size=args.micro_batch_size,
        max_prompt_tokens=48, max_example_tokens=args.max_example_tokens, template=PRESETS['document'],
        lora_rank=8,
    )  # fmt: skip
    key = RunKey.new()
    rows: list[units.Row] = [
        (key.hash('benchmark', str(number).encode(), size=16), row['label'], [row['text']])
        for number, row in enumerate(records.demo_records(units_of_all))
    ]
    members_of_all = units.in_order(rows)
    encoded = units.encode(
        members_of_all, settings.writer(), settings.labels, texts_of_unit=1,
        max_tokens=settings.max_example_tokens,
    )  # fmt: skip

    began = time.perf_counter()
    batches = train.Batches.of(members_of_all, key, settings.run_id, settings.params)
    own_sampling = time.perf_counter() - began
    began = time.perf_counter()
    strategy = batch_selection.CyclicPoissonSampling(
        sampling_prob=settings.params.sampling_probability,
        iterations=args.steps,
        partition_type=batch_selection.PartitionType.INDEPENDENT,
    )
    drawn = list(strategy.batch_iterator(units_of_all, rng=0))
    library_sampling = time.perf_counter() - began
    assert len(drawn) == len(batches.members) == args.steps

    trainer = train.Trainer(settings)
    tunable = own.load_tunable(args.model, settings.checkpoint, dtype=settings.dtype)
    instructions = units.Instructions.of(settings.writer(), settings.labels)
    model = tunable.weights, (jnp.asarray(instructions.tokens), jnp.asarray(instructions.lengths), None)
    of_unit = loss.unit_loss(
        tunable, max_tokens=settings.max_example_tokens, mismatch_weight=settings.mismatch_weight
    )
    clipped = jax_privacy.clipped_grad(
        of_unit, l2_clip_norm=settings.params.clip_norm, batch_argnums=2, keep_batch_dim=False,
        microbatch_size=settings.micro_batch_size,
    )  # fmt: skip
    privatizer = noise_addition.gaussian_privatizer(stddev=settings.params.noise_scale, prng_key=0)
    optimizer = optax.adam(settings.learning_rate)

    def library_step(state: Any, model: Any, batch: Any, is_padding: Any) -> Any:
        factors, noise_state, inner = state
        total = clipped(factors, model, batch, is_padding_example=is_padding)
        noisy, noise_state = privatizer.update(total, noise_state)
        mean = jax.tree.map(lambda leaf: leaf / size, noisy)
        changes, inner = optimizer.update(mean, inner, factors)
        return optax.apply_updates(factors, changes), noise_state, inner

    state = trainer.first_state(key)
    library_state = (
        state['adapter'],
        privatizer.init(state['adapter']),
        optimizer.init(state['adapter']),
    )
    # One size of batch for all steps, so that the library's program is compiled once.
    rng = np.random.default_rng(0)
    compiled = None
    own_seconds, library_seconds = [], []
    for step in range(args.steps + 1):
        members = np.sort(rng.choice(units_of_all, size, replace=False))
        words = rng.integers(2**63, size=units_of_all, dtype=np.uint64)
        began = time.perf_counter()
        state = jax.block_until_ready(trainer.step(state, encoded, members, words, key))
        own_seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        padded = batch_selection.pad_to_multiple_of(members, settings.micro_batch_size)
        chosen = [trainer._chosen(int(encoded.labels[row]), int(words[row])) for row in padded]
        batch = {
            'instructions': np.stack(chosen),
            'texts': encoded.texts[padded],
            'lengths': encoded.lengths[padded],
        }
        if compiled is None:
            compiled = jax.jit(library_step).lower(library_state, model, batch, padded == -1).compile()
        library_state = jax.block_until_ready(compiled(library_state, model, batch, padded == -1))
        library_seconds.append(time.perf_counter() - began)
        if step == 0:  # it compiled
            own_seconds, library_seconds = [], []

    assert compiled is not None
    own_program = trainer._batch_sum.lower(state['adapter'], model, batch, jnp.int32(size)).compile()
    ours, theirs = statistics.median(own_seconds), statistics.median(library_seconds)
    print(json.dumps({
        'benchmark': 'tuning', 'model': args.model, 'expected_batch_size': size,
        'micro_batch_size': settings.micro_batch_size, 'max_example_tokens': settings.max_example_tokens,
        'steps': args.steps, 'seconds_per_step': round(ours, 2), 'library_seconds_per_step': round(theirs, 2),
        'ratio': round(ours / theirs, 3),
        'program_mb': round(own_program.memory_analysis().temp_size_in_bytes / 1e6),
        'library_program_mb': round(compiled.memory_analysis().temp_size_in_bytes / 1e6),
        'sampling_seconds': round(own_sampling, 3), 'library_sampling_seconds': round(library_sampling, 3),
    }))  # fmt: skip


if __name__ == '__main__':
    main()
