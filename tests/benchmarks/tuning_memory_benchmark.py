"""Benchmark of what a step of DP fine-tuning holds in memory, by the compiler and by `plan`, without weights.

Prints one JSON line for each model. Run from the repository root, with as many devices as the processor shall
pretend to have:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.benchmarks.tuning_memory_benchmark \\
        gemma3-270m gemma2-2b gemma3-4b

The gradient of one micro-batch with two instructions a unit is compiled from shapes alone, once with what
layers compute kept for the way back and once with it computed again (`--remat`). On each device, in GB:
`held` is what the program holds beside its arguments, `weights` those of the model, of which each device has
a copy, and `planned` what `dp-corpus plan` says beside them. A processor multiplies bfloat16 by way of copies
in float32, which an accelerator does not: give `--dtype float32` to see what is kept.
"""

import argparse
import functools
import json
import time
from typing import Any


def main() -> None:
    """Compiles each model's step twice, and prints the lines."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from models.decoders.family import Tunable
    from models.decoders.gemma.architectures import ARCHITECTURES
    from models.decoders.transformer import tuning
    from models.decoders.transformer.weights import adapter_shapes
    from models.finetuning import loss, train
    from models.privacy.gradients import clipped_sum
    from pipeline import methods
    from pipeline.config import job_config
    from pipeline.methods.fine_tune import plan

    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('models', nargs='+', choices=sorted(ARCHITECTURES))
    parser.add_argument('--units-of-device', type=int, default=2)
    parser.add_argument('--max-prompt-tokens', type=int, default=64)
    parser.add_argument('--max-example-tokens', type=int, default=64)
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='bfloat16')
    args = parser.parse_args()

    devices = jax.local_devices()
    mesh = jax.sharding.Mesh(np.array(devices), ('units',))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    by_unit = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('units'))
    together, labels = args.units_of_device * len(devices), 2

    def shaped(tree: Any, dtype: Any = None) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype or leaf.dtype, sharding=everywhere), tree
        )

    def of(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=everywhere)

    for model in args.models:
        architecture = ARCHITECTURES[model]
        weights = shaped(adapter_shapes(architecture, None), jnp.dtype(args.dtype))
        adapter = shaped(adapter_shapes(architecture, 8))
        prompts = of(labels, args.max_prompt_tokens), of(labels)
        products = shaped(
            jax.eval_shape(functools.partial(tuning.products, architecture), weights, adapter, prompts[0])
        )
        units = {
            'instructions': of(together, 2),
            'texts': of(together, 1, args.max_example_tokens),
            'lengths': of(together, 1),
        }
        of_weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(weights))
        line: dict[str, Any] = {
            'benchmark': 'tuning_memory', 'model': model, 'devices': len(devices), 'dtype': args.dtype,
            'units_of_device': args.units_of_device,
            'tokens': args.max_prompt_tokens + args.max_example_tokens,
            'weights': _gigabytes(of_weights),
        }  # fmt: skip
        for remat in (False, True):
            name = 'computed again' if remat else 'kept'
            tunable = Tunable(
                weights=weights,
                products=functools.partial(tuning.products, architecture),
                log_probabilities=functools.partial(tuning.log_probabilities, architecture, remat=remat),
            )
            of_unit = loss.unit_loss(tunable, max_tokens=args.max_example_tokens, mismatch_weight=0.2)
            summed = train.batch_sum(
                clipped_sum(of_unit, 1.0),
                together,
                functools.partial(jax.lax.with_sharding_constraint, shardings=by_unit),
            )
            began = time.perf_counter()
            program = jax.jit(summed).lower(adapter, (weights, (*prompts, products)), units, of()).compile()
            config = job_config(
                method='fine-tune', model=model, records=10_000, delta=1e-5, epsilon=1.0, labels=('a', 'b'),
                label_field='label', checkpoint=__file__, tokenizer=__file__, micro_batch_size=together,
                max_prompt_tokens=args.max_prompt_tokens, max_example_tokens=args.max_example_tokens,
                remat=remat,
            )  # fmt: skip
            line[name] = {
                'held': _gigabytes(program.memory_analysis().temp_size_in_bytes),
                'planned': _gigabytes(
                    plan.needed_memory(methods.solve(config), args.dtype, len(devices)) - of_weights
                ),
                'compiled_in': round(time.perf_counter() - began),
            }
        print(json.dumps(line), flush=True)


def _gigabytes(count: int) -> float:
    return round(count / 1e9, 2)


if __name__ == '__main__':
    main()
