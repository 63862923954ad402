"""Errors that can be known without records are told before a budget is charged, with their remedy."""

import collections
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from models.decoders import device_memory
from models.decoders.gemma import architectures
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict.plan import needed_memory
from pipeline.run import resources
from pipeline.settings.job_config import JobConfig
from tests.command_line import Done, in_this_process

Usage = collections.namedtuple('Usage', 'total used free')
Generate = Callable[..., Done]


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> Ledger:
    place = str(tmp_path / 'ledger.db')
    done = in_this_process(
        'ledger', 'add', 'visits', '--ledger', place, '--unit', 'example', '--epsilon', '9', '--delta', '1e-6'
    )
    assert done.returncode == 0, done.stderr
    return Ledger.open(place)


@pytest.fixture
def generate(tmp_path: pathlib.Path, ledger: Ledger) -> Generate:
    """Starts a run that would be charged."""
    (tmp_path / 'in.jsonl').write_text(json.dumps({'text': 'Zyxquortle writes.'}) + '\n')

    def call(*more: str) -> Done:
        return in_this_process(
            'generate', '--input', str(tmp_path / 'in.jsonl'), '--epsilon', '1', '--delta', '1e-6',
            '--batches-per-label', '2', '--dataset', 'visits', '--ledger', str(tmp_path / 'ledger.db'),
            *(() if '--output' in more else ('--output', str(tmp_path / 'out'))), *more,
        )  # fmt: skip

    return call


def assert_refused(done: Done, ledger: Ledger, *said: str) -> None:
    assert done.returncode == 2, done.stderr
    for words in said:
        assert words in done.stderr
    assert 'Zyxquortle' not in done.stdout + done.stderr
    assert ledger.account('visits').rho_spent == 0 and not ledger.account('visits').runs


def test_a_wrong_checkpoint_is_not_charged(
    tmp_path: pathlib.Path, ledger: Ledger, generate: Generate
) -> None:
    nowhere, empty = tmp_path / 'nowhere', tmp_path / 'empty'
    empty.mkdir()
    for place, said in (
        (nowhere, f"got checkpoint='{nowhere}', which is not there"),
        (empty, f"got checkpoint='{empty}', a folder without weights"),
    ):
        assert_refused(generate('--checkpoint', str(place)), ledger, said)
    assert not (tmp_path / 'out').exists() and not (tmp_path / 'out.curator').exists()


def test_weights_of_another_model_are_not_charged_and_three_numbers_say_why(
    ledger: Ledger, generate: Generate
) -> None:
    from models import bundled

    files = '--checkpoint', str(bundled.CHECKPOINT), '--tokenizer', str(bundled.TOKENIZER)
    done = generate('--model', 'gemma3-270m', *files)
    assert_refused(
        done,
        ledger,
        f'num_layers={architectures.ARCHITECTURES["bundled"].num_layers} where 18 is expected; '
        'embed_dim=256 where 640 is expected; '
        'hidden_dim=512 where 2048 is expected. Its numbers are those of --model bundled.',
    )


def test_a_tokenizer_that_is_none_is_not_charged(
    tmp_path: pathlib.Path, ledger: Ledger, generate: Generate
) -> None:
    (tmp_path / 'tokenizer.model').write_text('no pieces')
    place = str(tmp_path / 'tokenizer.model')
    assert_refused(
        generate('--tokenizer', place),
        ledger,
        f'Expected a SentencePiece model, got tokenizer={place!r}, which is none. Give the tokenizer.model',
    )


def test_a_prompt_that_does_not_fit_is_not_charged(ledger: Ledger, generate: Generate) -> None:
    assert_refused(generate('--max-prompt-tokens', '4'), ledger, 'max_prompt_tokens=4')


def test_a_file_where_the_output_should_be_is_not_charged(
    tmp_path: pathlib.Path, ledger: Ledger, generate: Generate
) -> None:
    (tmp_path / 'file').write_text('')
    place = str(tmp_path / 'file' / 'out')
    assert_refused(
        generate('--output', place), ledger, f"got output='{place}', where", 'is a file', 'another --output'
    )


def test_a_folder_that_cannot_be_written_is_not_charged(
    ledger: Ledger, generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # root may write everywhere, so the system's answer is given here.
    monkeypatch.setattr(resources.os, 'access', lambda *_: False)
    assert_refused(generate(), ledger, 'Expected a folder that can be written', 'Choose another --output')


def test_a_full_disk_is_not_charged(
    ledger: Ledger, generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, 'disk_usage', lambda _: Usage(2**40, 2**40 - 2**20, 2**20))
    assert_refused(generate(), ledger, 'of free disk for the run, got 1 MiB free at output=', 'Make room')


def test_too_little_memory_is_not_charged(
    ledger: Ledger, generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = collections.namedtuple('memory', 'available')
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: memory(3 * 2**20))
    assert_refused(
        generate(), ledger, "for the weights of model='bundled' in", 'got 3 MiB that is free', '--batch-size'
    )


def config(**settings: Any) -> JobConfig:
    given = {
        'output': 'out',
        'aggregate': 'mean',
        'max_private_tokens': 100,
        'delta': 1e-6,
        'dtype': 'float32',
    }
    return job_config(**(given | settings))


def test_needed_memory_is_weights_and_one_batch() -> None:
    small = methods.solve(config(batch_size=1, max_prompt_tokens=1, max_example_tokens=1))
    sizes = small.method.model_sizes
    least = needed_memory(small, 'float32')
    assert least == 4 * sizes.num_parameters + 2 * sizes.cache_bytes_per_token(4)
    large = methods.solve(config(batch_size=64))
    slots = large.method.max_prompt_tokens + large.method.max_example_tokens
    # Devices share the rows, and the weights where they have to.
    whole = 4 * sizes.num_parameters + 64 * slots * sizes.cache_bytes_per_token(4)
    assert needed_memory(large, 'float32', devices=4) == whole // 4
    assert 2 * needed_memory(small, 'bfloat16') == least


def test_needed_disk_grows_with_the_tokens_that_public_numbers_promise() -> None:
    least = resources.needed_disk(methods.solve(config(delta=1e-6), launch=True))
    some = resources.needed_disk(methods.solve(config(batches_per_label=1_000), launch=True))
    more = resources.needed_disk(methods.solve(config(batches_per_label=2_000), launch=True))
    assert least < some and more - some == some - least == 1_000 * 100 * 16


def test_workers_elsewhere_are_not_judged_by_this_machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, 'memory_here', lambda: device_memory.Memory(1, 1))
    at = str(tmp_path / 'out')
    resources.check(methods.solve(config(output=at, runner='FlinkRunner'), launch=True))
    with pytest.raises(ValueError, match='Expected at least .* of memory'):
        resources.check(methods.solve(config(output=at), launch=True))
