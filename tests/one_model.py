"""One loaded model for all runs of a test process, which compile what they decode with once."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import pytest

from models.assembly import GeneratorSettings
from models.generate.batch import BatchGenerator
from models.privacy.params import MechanismParams

_build = GeneratorSettings.build


@functools.lru_cache(maxsize=8)
def _built(settings: GeneratorSettings) -> BatchGenerator:
    return _build(settings)


def _build_once(settings: GeneratorSettings) -> BatchGenerator:
    # The model's shapes take one number alone of a run's own params.
    length = settings.params.max_example_tokens
    params = MechanismParams(
        batch_size=1, clip_bound=1.0, temperature=1.0, max_private_tokens=1, max_batch_tokens=length,
        max_example_tokens=length,
    )  # fmt: skip
    generator = _built(
        dataclasses.replace(settings, run_id='', params=params, label_words=(), reference=None)
    )
    return dataclasses.replace(
        generator, run_id=settings.run_id, params=settings.params, writer=settings.writer()
    )


@contextlib.contextmanager
def one_model() -> Iterator[None]:
    """`GeneratorSettings.build` is the real one meanwhile, its result kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GeneratorSettings, 'build', _build_once)
        yield
