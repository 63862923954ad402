"""Sampling of planned batches by a worker, and what it reads back of a finished one."""

import pathlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from models.finetuning import adapter as adapters
from models.privacy.randomness import RunKey
from models.records import TunedExample
from tests.models.finetuning import tiny
from tests.samples import SECRET
from transforms.durable import write_key
from transforms.finetune import sample
from transforms.finetune.sample import SampleTexts
from transforms.run_files import ADAPTER_TENSORS, BATCHES_FOLDER


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


class Worker:
    """One worker of a run with two labels, whose adapter is in its work directory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.batches, self.adapter = folder / BATCHES_FOLDER, folder / ADAPTER_TENSORS
        self.batches.mkdir(parents=True)
        data = adapters.to_bytes(jax.tree.map(np.asarray, tiny.adapter()))
        self.adapter.write_bytes(data)
        write_key(str(folder), RunKey(SECRET))
        self._digest = adapters.digest(data)
        settings = tiny.settings(
            max_example_tokens=10, temperature=4.0, labels=('a', 'b'), micro_batch_size=8, lora_rank=2
        )
        self._step = SampleTexts(settings, str(folder), str(folder))
        self._step.setup()

    def of_bundle(self, elements: Sequence[tuple[int, int, int]]) -> list[list[TunedExample]]:
        """The results of each element of a bundle, and of its end."""
        self._step.start_bundle()
        found = [list(self._step.process(element, self._digest)) for element in elements]
        return [*found, [one.value for one in self._step.finish_bundle()]]


BUNDLE = ((0, 0, 5), (0, 1, 3), (1, 0, 8))


@pytest.mark.first
@pytest.mark.heavy
def test_a_bundle_gives_the_texts_that_bundles_of_one_batch_give(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, together = Worker(tmp_path / 'alone'), Worker(tmp_path / 'together')
    expected = [text for element in BUNDLE for of in alone.of_bundle([element]) for text in of]
    assert [text.index_in_batch for text in expected] == [*range(5), *range(3), *range(8)]
    *early, rest = together.of_bundle(BUNDLE)
    assert early == [[], [], []] and rest == expected
    for path in alone.batches.iterdir():
        assert (together.batches / path.name).read_bytes() == path.read_bytes()
    # The first are written before the bundle ends where more wait than are sampled together.
    monkeypatch.setattr(sample.SampleTexts, 'together', 8)
    in_parts = Worker(tmp_path / 'in parts')
    assert in_parts.of_bundle(BUNDLE) == [[], expected[:8], expected[8:], []]


@pytest.mark.first
@pytest.mark.heavy
def test_a_finished_batch_is_read_and_only_the_others_are_sampled(tmp_path: pathlib.Path) -> None:
    worker = Worker(tmp_path)
    *_, first = worker.of_bundle(BUNDLE)
    (worker.batches / '0000-000001.json').unlink()
    assert worker.of_bundle(BUNDLE) == [first[:5], [], first[8:], first[5:8]]
    # Nothing is left to sample, so no model is loaded.
    worker.adapter.unlink()
    assert worker.of_bundle(BUNDLE) == [first[:5], first[5:8], first[8:], []]
