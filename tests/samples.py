"""Parts for tests of several rooms: plans, batches, pipelines, processes and screens.

Heavy libraries are imported where they are used, so that a test of plain functions stays quick.
"""

import base64
import bz2
import contextlib
import dataclasses
import io
import json
import pathlib
import pickle
import re
import subprocess
import sys
import typing
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from models.batch_plan import BatchPlan, Clustering
from models.privacy.params import MechanismParams, Unit
from models.records import Batch, BatchId, Context, Record

if typing.TYPE_CHECKING:
    import apache_beam as beam
    import jax
    import numpy as np
    import rich.console

    from models.decoders.decoder import Decoder
    from models.generate.rows import PublicRows
    from models.privacy import mechanism
    from models.privacy.candidates import Candidates
    from models.privacy.grid import NoiseSource
    from models.privacy.randomness import BatchDraws

ROOT = pathlib.Path(__file__).parents[1]
needs_model = pytest.mark.skipif(
    not (ROOT / 'models' / 'bundled' / 'checkpoint').exists(),
    reason='the bundled model has no checkpoint: train it first',
)

# --- Records, plans and batches --------------------------------------------------

SECRET = bytes(range(32))  # of a run key
LABELS = ('a', 'b')
PLAN = BatchPlan(labels=LABELS, batches_per_group=(3, 2), noisy_counts=None, contexts_rho=0.0)
CLUSTERED = BatchPlan(
    labels=LABELS,
    batches_per_group=(3, 2, 1, 4),
    noisy_counts=(30, 20, -1, 40),
    contexts_rho=0.0025,
    clustering=Clustering(kept=((0, 2), (1, 2)), noisy_counts=((9, -4, 8), (0, 5, 7)), rho=0.0025),
)
# A mechanism that is quick to draw from.
PARAMS = MechanismParams(
    batch_size=4,
    clip_bound=3.0,
    temperature=2.0,
    max_private_tokens=1,
    max_batch_tokens=8,
    threshold=0.5,
    threshold_noise_scale=0.1,
)
# Units of privacy, with the examples of a context.
MODES: list[tuple[Unit, int]] = [('example', 1), ('example', 2), ('user', 1), ('user', 2)]


def in_clusters(records: list[Record], plan: BatchPlan) -> list[Record]:
    """The records in kept clusters of their labels, chosen by their texts alone as `Recluster` does."""
    if plan.clustering is None:
        return records
    kept = dict(zip(plan.labels, plan.clustering.kept, strict=True))
    return [
        dataclasses.replace(record, cluster=kept[record.label][sum(map(ord, record.text)) % 2])
        if record.label in kept
        else record
        for record in records
    ]


def contexts(texts: Sequence[str | tuple[str, ...]]) -> tuple[Context, ...]:
    """One context for each text, or for each tuple of texts."""
    return tuple(
        Context(context_hash=bytes([number]) * 16, texts=(text,) if isinstance(text, str) else text)
        for number, text in enumerate(texts)
    )


def batch(texts: Sequence[str | tuple[str, ...]], *, label: str | None = 'sports', index: int = 0) -> Batch:
    return Batch(batch_id=BatchId(group=0, index=index), label=label, contexts=contexts(texts))


def batch_draws(
    params: MechanismParams, levels: int, *, run_id: str = 'run', batch_id: str = '0000-000000'
) -> 'BatchDraws':
    """A batch's randomness under the key of `SECRET`."""
    from models.privacy import randomness

    return randomness.batch_draws(
        randomness.RunKey(SECRET),
        run_id,
        batch_id,
        max_private_tokens=params.private_token_cap,
        max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=params.threshold_noise_scale,
        batch_size=params.batch_size,
        levels=levels,
    )


def distance_of(limbs: 'jax.Array | np.ndarray', params: MechanismParams) -> 'np.ndarray':
    """Distances in float64, of `[..., 2]` as the device has them."""
    import numpy as np

    from models.privacy import sparse_vector

    high, low = np.moveaxis(np.asarray(limbs, np.int64), -1, 0)
    return sparse_vector.probability((high << 24) + low, params)


def noise_in_limbs(noise: float, params: MechanismParams) -> 'jax.Array':
    """Noise of the sparse-vector test, which is given as a distance is, for the device."""
    import jax.numpy as jnp
    import numpy as np

    from models.privacy import sparse_vector

    quanta = np.rint(np.asarray(noise) * params.batch_size * sparse_vector.MASS).astype(np.int64)
    return jnp.asarray(sparse_vector.limbs(quanta))


def noise_source(name: str = 'table', secret: bytes = SECRET) -> 'NoiseSource':
    """Noise of a table of this name, under the key of `SECRET` or another."""
    from models.privacy import grid, randomness

    return grid.NoiseSource(randomness.RunKey(secret), (name.encode(),))


def tally(
    rows: 'tuple[jax.Array, ...]',
    is_private: 'tuple[jax.Array, ...]',
    params: MechanismParams,
    mask: 'jax.Array | None' = None,
) -> 'mechanism.Votes':
    """The votes of raw logits; of the whole vocabulary where no mask is given.

    Where public logits are read, row 0 of the first micro-batch is the public prompt's.
    """
    import jax.numpy as jnp

    from models.privacy import mechanism

    everything = jnp.ones(rows[0].shape[1], bool)
    mask = everything if mask is None else jnp.asarray(mask)
    public = rows[0][:1] if params.needs_public_logits else None
    return mechanism.tally(public, rows, is_private, mask, params)


def public_rows(
    decoder: 'Decoder', prompt: 'np.ndarray | None', params: MechanismParams
) -> 'PublicRows | None':
    """The public prompt after its prefill, where the mechanism reads public logits."""
    from models.generate.rows import prefill_public

    if prompt is None or not params.needs_public_logits:
        return None
    return prefill_public(decoder, [prompt])


def allowed_of(found: 'Candidates', vocab: int) -> 'np.ndarray':
    """`[V]` bool: the allowed candidates among all tokens."""
    import numpy as np

    allowed = np.zeros(vocab, bool)
    tokens = np.arange(vocab) if found.tokens is None else np.asarray(found.tokens)
    allowed[tokens[np.asarray(found.allowed)]] = True
    return allowed


def write_rows(path: pathlib.Path, rows: Iterable[Mapping[str, object]]) -> str:
    """Writes JSON lines; the file's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows), encoding='utf-8')
    return str(path)


# --- Pipelines -------------------------------------------------------------------


def pipeline(*flags: str) -> 'beam.Pipeline':
    """A pipeline with these flags; on Beam's portable in-process runner where they name none."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    runner = () if any(flag.startswith('--runner=') for flag in flags) else ('--runner=FnApiRunner',)
    return beam.Pipeline(options=PipelineOptions([*runner, *flags]))


def keep_batch(batch: Batch, folder: str) -> None:
    """Writes a batch down; fails when a repeated bundle holds another batch of that name."""
    path, data = pathlib.Path(folder, str(batch.batch_id)), pickle.dumps(batch)
    assert not path.exists() or path.read_bytes() == data
    path.write_bytes(data)


def unpacked(data: bytes) -> bytes:
    """The bytes, and those that Beam packed into them: base64 of compressed pickles."""
    parts = [data]
    for found in re.findall(rb'[A-Za-z0-9+/]{40,}={0,2}', data):
        for cut in range(4):
            with contextlib.suppress(ValueError):
                raw = base64.b64decode(found[cut:] + b'=' * (-len(found[cut:]) % 4))
                parts.append(raw)
                for decompress in (bz2.decompress, zlib.decompress):
                    with contextlib.suppress(OSError, ValueError, zlib.error):
                        parts.append(decompress(raw))
    return b'\0'.join(parts)


def with_first(names: Iterable[str], *first: str) -> list[Any]:
    """Values of a parameter, some with the mark `first`: `make test` takes their tests."""
    return [pytest.param(name, marks=pytest.mark.first) if name in first else name for name in names]


# --- Processes and screens -------------------------------------------------------


def assert_import_leaves(module: str, *heavy: str) -> None:
    """Fails if importing the module, in a process of its own, imports one of the heavy ones."""
    code = f'import sys, {module}; found = {set(heavy)!r} & sys.modules.keys(); assert not found, found'
    subprocess.run([sys.executable, '-c', code], check=True, timeout=120, cwd=ROOT)


def on_terminal(render: Callable[['rich.console.Console'], object], width: int) -> str:
    """The output of a function on a terminal that is no terminal: the text without control characters."""
    import rich.console

    screen = io.StringIO()
    render(rich.console.Console(file=screen, width=width, force_terminal=False))
    return screen.getvalue()


def without_times(name: str, data: bytes) -> bytes:
    """A file without the curator's figures of time: all else of it has to be the same."""
    if name.endswith('restricted_report.html'):
        data, found = re.subn(rb'<h2>Time of the workers</h2>.*?</section>', b'', data, flags=re.DOTALL)
        assert found == 1
    if name.endswith('restricted_report.json'):
        document = json.loads(data)
        assert document.pop('workers')
        return json.dumps(document).encode()
    return data
