"""Benchmark of loading a checkpoint into a decoder: seconds, and memory over that of the weights.

Prints one JSON line. Run from the repository root, on Linux, in a process of its own:

    python -m tests.benchmarks.loading_benchmark --dtype float32

The file is the one that `make gemma` fetches, or --checkpoint. Memory is what the process held at
most while it loaded, file cache left out, less what it held when its libraries were
imported. Aim: at most 1.3 times the weights in the run's type.
"""

import argparse
import json
import pathlib
import re
import time


def memory(name: str) -> int:
    """A number of this process's status, in bytes: VmRSS is held now, VmHWM was held at most."""
    status = pathlib.Path('/proc/self/status').read_text()
    (kilobytes,) = re.findall(rf'^{name}:\s+(\d+) kB$', status, re.MULTILINE)
    return int(kilobytes) * 1024


def main() -> None:
    """Loads once, and prints the line."""
    from models import fetched
    from models.decoders import decoder, family

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--model', default=fetched.MODEL)
    parser.add_argument('--checkpoint', default=str(fetched.fetched_file()))
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
    args = parser.parse_args()

    own = family.family_of(args.model)
    shapes = decoder.Shapes(max_prompt_tokens=16, max_example_tokens=16, micro_batch_size=8)
    # The libraries, and what they hold for themselves once they have computed something.
    own.load_decoder(
        'bundled', own.known_files('bundled').checkpoint, shapes=shapes, dtype=args.dtype
    )  # fmt: skip
    before = memory('VmRSS')
    pathlib.Path('/proc/self/clear_refs').write_text('5')  # VmHWM starts again

    began = time.perf_counter()
    loaded = own.load_decoder(args.model, args.checkpoint, shapes=shapes, dtype=args.dtype)
    seconds = time.perf_counter() - began
    peak = memory('VmHWM') - before
    weights = family.sizes_of(args.model).num_parameters * {'float32': 4, 'bfloat16': 2}[args.dtype]
    print(json.dumps({
        'benchmark': 'loading', 'model': args.model, 'dtype': args.dtype, 'seconds': round(seconds, 1),
        'weights_mb': round(weights / 1e6), 'peak_mb': round(peak / 1e6),
        'held_mb': round((memory('VmRSS') - before) / 1e6), 'peak_over_weights': round(peak / weights, 3),
    }))  # fmt: skip
    del loaded


if __name__ == '__main__':
    main()
