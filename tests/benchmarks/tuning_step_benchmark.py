"""Benchmark of where a step of DP fine-tuning goes, and of what each saving brings, on real questions.

Prints one JSON line. Run from the repository root; it needs the weights of Gemma 3 270M and the records of
`tests.benchmarks.real_records`:

    python -m tests.benchmarks.tuning_step_benchmark --units 8 --micro-batch-size 4
    python -m tests.benchmarks.tuning_step_benchmark --data agnews --max-example-tokens 64 \
        --variants 'own length' --together 1 2 4 16

The clipped sum of some units of TREC or other records, FT's loss with one wrong instruction, factors of rank
8: processor seconds for a unit, the median of rounds in which all variants take turns, and the same over
those of the first: unless some are named `whole rows`, the slow twin in tests/oracles/finetuning.py:

* `whole rows`: each text after each instruction in a row of its own, padded to the longest; logits of all
  columns, computed twice;
* `own length`: a step of `models.finetuning.train`, in which texts are padded by their own length;
* `own length, computed again`: the same with `--remat`, which keeps less of what layers compute;
* `own length, right prompt`: the same at a step that `--mismatch-every` spares the wrong instruction;
* `N together`, for each N of `--together`: `own length` with micro-batches of N units.

`floor` is the time of nothing but products of matrices that this loss needs, of unpadded tokens.
"""

import argparse
import collections
import dataclasses
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Runs all variants, and prints the line."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from models.decoders import family
    from models.decoders.gemma.architectures import ARCHITECTURES
    from models.finetuning import loss, train, units
    from models.finetuning.settings import TuningSettings
    from models.privacy.gradients import TuningParams, clipped_sum
    from models.privacy.randomness import RunKey
    from models.prompt_templates import PRESETS
    from tests.benchmarks import real_records
    from tests.oracles import finetuning as slow

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--data', choices=('trec', 'agnews', 'imdb'), default='trec')
    parser.add_argument('--units', type=int, default=32)
    parser.add_argument('--micro-batch-size', type=int, default=8)
    parser.add_argument('--max-example-tokens', type=int, default=32)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
    parser.add_argument('--variants', nargs='+', help='All of them unless some are named.')
    parser.add_argument('--together', nargs='*', type=int, default=[], help='Other sizes of micro-batches.')
    args = parser.parse_args()

    model, dataset = 'gemma3-270m', real_records.DATASETS[args.data]
    own, architecture = family.family_of(model), ARCHITECTURES[model]
    files = own.known_files(model)
    assert files is not None
    size, most = args.micro_batch_size, args.max_example_tokens
    settings = TuningSettings(
        run_id='benchmark',
        params=TuningParams(
            units=5452.0, expected_batch_size=args.units, tuning_steps=1, clip_norm=1.0, noise_multiplier=0.7
        ),
        labels=tuple(dataset.labels), model=model, checkpoint=str(files.checkpoint),
        tokenizer=str(files.tokenizer), dtype=args.dtype, micro_batch_size=size,
        max_prompt_tokens=dataset.max_prompt_tokens, max_example_tokens=most, template=PRESETS['document'],
        label_words=tuple(dataset.labels.items()), label_name=dataset.label_name,
        text_name=dataset.text_name, corpus_description=dataset.description, lora_rank=8,
    )  # fmt: skip
    records = dataset.train()
    rng = np.random.default_rng(0)
    rows: list[units.Row] = [
        (int(n).to_bytes(16), records[n][0], [records[n][1]])
        for n in rng.choice(len(records), args.units, replace=False)
    ]
    encoded = units.encode(
        units.in_order(rows), settings.writer(), settings.labels, texts_of_unit=1, max_tokens=most
    )
    members = np.arange(args.units)
    words = rng.integers(2**63, size=args.units, dtype=np.uint64)
    trainer = train.Trainer(settings)
    weights, instructions = trainer._model
    # Factors as after some steps: the first ones add nothing.
    state = trainer.first_state(RunKey(bytes(32)))
    adapter = jax.tree.map(
        lambda leaf: leaf + 0.01 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), state['adapter']
    )
    state |= {'adapter': adapter}

    def collate(part: Any) -> dict[str, Any]:
        return {
            'instructions': np.stack([trainer._chosen(int(encoded.labels[u]), int(words[u])) for u in part]),
            'texts': encoded.texts[part],
            'lengths': encoded.lengths[part],
        }

    whole = slow.unit_loss(architecture, most, settings.mismatch_weight)
    padded = jax.jit(train.batch_sum(clipped_sum(whole, 1.0), size))

    def whole_rows() -> Any:
        def batch_sum(of_units: Any, count: Any) -> Any:
            return padded(adapter, (weights, instructions), of_units, count)

        return train.summed(batch_sum, adapter, members, collate, args.units)

    def with_program(program: Any) -> Any:
        kept = trainer._batch_sum
        trainer._batch_sum = program
        try:
            return trainer.gradient(state, encoded, members, words)
        finally:
            trainer._batch_sum = kept

    def of_right_prompts() -> Any:
        """The gradient of the second step, which `mismatch_every=2` spares the wrong instruction."""
        trainer._settings = dataclasses.replace(settings, mismatch_every=2)
        try:
            return trainer.gradient(state | {'step': 1}, encoded, members, words)
        finally:
            trainer._settings = settings

    again = own.load_tunable(model, settings.checkpoint, dtype=args.dtype, remat=True)
    of_unit = loss.unit_loss(again, max_tokens=most, mismatch_weight=settings.mismatch_weight)
    remat = jax.jit(train.batch_sum(clipped_sum(of_unit, 1.0), size))

    variants: dict[str, Callable[[], Any]] = {
        'whole rows': whole_rows,
        'own length': lambda: trainer.gradient(state, encoded, members, words),
        'own length, computed again': lambda: with_program(remat),
        'own length, right prompt': of_right_prompts,
    }
    if args.variants:
        variants = {name: variants[name] for name in args.variants}
    for together in args.together:
        of_size = train.Trainer(dataclasses.replace(settings, micro_batch_size=together))
        variants[f'{together} together'] = functools.partial(of_size.gradient, state, encoded, members, words)
    variants['floor'] = _products_alone(weights, instructions, encoded, settings, size)

    compiled, seconds, sums = {}, collections.defaultdict(list), {}
    for round_ in range(args.rounds + 1):
        for name, run in variants.items():
            began = time.process_time()
            found = jax.block_until_ready(run())
            taken = time.process_time() - began
            print(f'{round_} {name}: {taken:.1f}', file=sys.stderr, flush=True)
            if round_:
                seconds[name].append(taken)
            else:
                compiled[name], sums[name] = round(taken, 1), found

    middle = {name: statistics.median(of) / args.units for name, of in seconds.items()}
    first = next(iter(middle))
    print(json.dumps({
        'benchmark': 'tuning_step', 'model': model, 'data': args.data, 'dtype': args.dtype,
        'units': args.units, 'micro_batch_size': size,
        'max_example_tokens': most, 'mean_text_tokens': round(float(encoded.lengths.mean()), 1),
        'instruction_tokens': round(float(trainer._instructions.lengths.mean()), 1),
        'processor_seconds_of_a_unit': {name: round(of, 3) for name, of in middle.items()},
        'over': first,
        'ratio': {name: round(of / middle[first], 3) for name, of in middle.items()},
        'processor_seconds_with_compilation': compiled,
        'largest_difference_of_sums': {
            name: _difference(sums[first], sums[name])
            for name in sums
            if name in ('own length', 'own length, computed again') or name.endswith('together')
        },
    }))  # fmt: skip


def _difference(one: Any, other: Any) -> float:
    """Norm of the difference of two sums over the norm of the first."""
    import jax
    import numpy as np

    def flat(tree: Any) -> Any:
        return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])

    return float(f'{np.linalg.norm(flat(one) - flat(other)) / np.linalg.norm(flat(one)):.1e}')


def _products_alone(
    weights: Any, instructions: Any, encoded: Any, settings: Any, size: int
) -> Callable[[], Any]:
    """Two products with each matrix for each token of a text, and one for each of an instruction.

    The instructions' first products are computed once for all units. They are those of the layers; for each
    token of a text the output layer has two.
    """
    import jax
    import jax.numpy as jnp

    ways, table = 1 + settings.wrong_prompts_of_step, weights.embedding
    of_texts = round(float(encoded.lengths.mean()) * ways * size)
    of_prompts = round(float(instructions[1].mean()) * ways * size)

    def by_axes(of: Any, matrix: Any, axis: int) -> Any:
        """The product along an axis of the matrix, in its type."""
        axes = (((1,), (axis,)), ((), ()))
        return jax.lax.dot_general(of.astype(matrix.dtype), matrix, axes, preferred_element_type=jnp.float32)

    @jax.jit
    def once(weights: Any, of_text: Any, of_prompt: Any) -> Any:
        total = jnp.float32(0)
        for layer in weights.layers:
            for name in ('query_key_value', 'attention_output', 'gate_up', 'down'):
                matrix = getattr(layer, name)
                rows, columns = matrix.shape
                there = jnp.tile(of_text, (1, rows // of_text.shape[1] + 1))[:, :rows]
                total += by_axes(there, matrix, 0).max()
                back = jnp.concatenate([of_text, of_prompt])
                back = jnp.tile(back, (1, columns // back.shape[1] + 1))[:, :columns]
                total += by_axes(back, matrix, 1).max()

        def of_piece(index: Any, total: Any) -> Any:
            rows = jax.lax.dynamic_slice_in_dim(weights.embedding, index * 4096, 4096)
            return total + by_axes(by_axes(of_text, rows, 1), rows, 0).max()

        return jax.lax.fori_loop(0, len(weights.embedding) // 4096, of_piece, total)

    width = table.shape[1]
    of_text = jnp.sin(jnp.arange(of_texts * width, dtype=jnp.float32)).reshape(-1, width)
    of_prompt = jnp.cos(jnp.arange(of_prompts * width, dtype=jnp.float32)).reshape(-1, width)
    units = len(encoded.lengths)
    return lambda: [jax.block_until_ready(once(weights, of_text, of_prompt)) for _ in range(units // size)]


if __name__ == '__main__':
    main()
