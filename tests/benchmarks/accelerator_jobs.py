"""Sampling, a step of fine-tuning and whole small jobs on a device: the parts of `accelerator_benchmark`
beside a decoding step. Each function gives JSON lines.

Jobs are commands as a user gives them, on invented messages, each in a process of its own. A job that is not
done within its limit is stopped, and its line says so.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from models.decoders import family

MODEL = 'gemma3-270m'
LABELS = ('Billing', 'Delivery', 'Appointment', 'Technical')
POLL_SECONDS = 0.1


class Size(NamedTuple):
    """The size of what is measured.

    Attributes:
        rows: Texts that are sampled side by side; and units of a step of fine-tuning.
        tokens: Longest text.
        people: People whose messages the jobs read.
        limit: Seconds that a job may take.
    """

    rows: int
    tokens: int
    people: int
    limit: float


SIZES = {'full': Size(512, 64, 10_000, 60), 'small': Size(16, 16, 400, 600)}


def _settings(checkpoint: pathlib.Path, dtype: str, size: Size) -> dict[str, Any]:
    from models.prompt_templates import PRESETS

    return {
        'model': MODEL, 'checkpoint': str(checkpoint), 'tokenizer': str(checkpoint), 'dtype': dtype,
        'max_prompt_tokens': 48, 'max_example_tokens': size.tokens, 'template': PRESETS['document'],
        'label_name': 'About', 'corpus_description': 'Messages of customers to a support desk.',
        'text_name': 'Message',
    }  # fmt: skip


def sampling(checkpoint: pathlib.Path, dtype: str, size: Size) -> dict[str, Any]:
    """Tokens a second of texts that are sampled in rows, four for each row."""
    from models.privacy.randomness import RunKey
    from models.sampling.decoder_source import DecoderSource
    from models.sampling.settings import SamplerSettings
    from models.sampling.source import Request

    source = DecoderSource(SamplerSettings(rows=size.rows, **_settings(checkpoint, dtype, size)))

    def sampled(name: str) -> tuple[int, float]:
        requests = [
            Request(name=f'{name}{number}', label=LABELS[number % len(LABELS)])
            for number in range(4 * size.rows)
        ]
        began = time.perf_counter()
        texts = source.sample(requests, RunKey(bytes(32)))
        seconds = time.perf_counter() - began
        return sum(text.tokens for text in texts if text is not None), seconds

    _, first = sampled('a')
    tokens, seconds = sampled('b')
    return {
        'measures': 'sampling', 'model': MODEL, 'rows': size.rows, 'tokens': tokens,
        'tokens_per_second': tokens / seconds, 'first_seconds': first, 'seconds': seconds,
    }  # fmt: skip


def tuning(checkpoint: pathlib.Path, dtype: str, size: Size) -> dict[str, Any]:
    """Units a second of a step of DP fine-tuning, factors of rank 8, texts as long as they may be."""
    import numpy as np

    from launch.demo.records import demo_records
    from models.finetuning.settings import TuningSettings
    from models.finetuning.train import Trainer
    from models.finetuning.units import in_order
    from models.privacy.gradients import TuningParams
    from models.privacy.randomness import RunKey

    settings = TuningSettings(
        run_id='benchmark', labels=LABELS, micro_batch_size=min(64, size.rows),
        params=TuningParams(
            units=20.0 * size.rows, expected_batch_size=size.rows, tuning_steps=1, clip_norm=1.0,
            noise_multiplier=0.7,
        ),
        **_settings(checkpoint, dtype, size),
    )  # fmt: skip
    trainer, key = Trainer(settings), RunKey(bytes(32))
    texts = [(record['label'], record['text']) for record in demo_records(size.rows)]
    rows = [(number.to_bytes(16), label, [4 * text]) for number, (label, text) in enumerate(texts)]
    units = in_order(rows[: size.rows])
    encoded, members = trainer.encoded(units), np.arange(len(units))
    words = trainer.words(units, members, key, 0)
    state, seconds = trainer.first_state(key), []
    for _ in range(4):
        began = time.perf_counter()
        state = trainer.step(state | {'step': state['step'] * 0}, encoded, members, words, key)
        np.asarray(state['step'])
        seconds.append(time.perf_counter() - began)
    return {
        'measures': 'tuning step', 'model': MODEL, 'units': len(units), 'tokens': size.tokens,
        'units_per_second': len(units) / statistics.median(seconds[1:]), 'first_seconds': seconds[0],
    }  # fmt: skip


def jobs(checkpoint: pathlib.Path, folder: pathlib.Path, size: Size) -> Iterator[dict[str, Any]]:
    """A small job of each method; private prediction twice, without compiled programs and with them."""
    from launch.demo.records import demo_records

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / 'records.jsonl').open('w') as lines:
        lines.writelines(json.dumps(record) + '\n' for record in demo_records(size.people))
    for name, arguments in commands(checkpoint, folder, size):
        yield _job(name, arguments, folder / name.replace(', ', '-').replace(' ', '-'), size)


def commands(checkpoint: pathlib.Path, folder: pathlib.Path, size: Size) -> list[tuple[str, list[str]]]:
    """Names of the jobs, and their commands but for output and run id."""
    common = [
        f'--input={folder / "records.jsonl"}', '--text-field=text', '--label-field=label',
        f'--labels={",".join(LABELS)}', '--unit=user', '--unit-field=customer', '--record-id-field=id',
        f'--records={size.people}',
        '--epsilon=8', '--delta=1e-5', f'--model={MODEL}', f'--checkpoint={checkpoint}',
        f'--tokenizer={checkpoint}', '--label-name=About', '--text-name=Message',
        '--corpus-description=Messages of customers to a support desk.',
        '--min-example-tokens=8', f'--max-example-tokens={size.tokens}',
        f'--compilation-cache={folder / "compiled"}',
    ]  # fmt: skip
    texts = f'--examples={8 * size.rows}'
    predict = [f'--batch-size={255 if size.people > 2000 else 31}', '--max-batch-tokens=96']
    tune = ['--tuning-steps=6', f'--expected-batch-size={size.rows}']
    votes, prompt = ['--embedder=decoder'], '--max-prompt-tokens=48'
    # A prompt of `evolve` shows texts.
    with_texts = f'--max-prompt-tokens={64 + 4 * size.tokens}'
    of_methods = (
        ('predict', 'predict', [*predict, prompt]),
        ('predict, compiled before', 'predict', [*predict, prompt]),
        ('fine-tune', 'fine-tune', [*tune, texts, prompt]),
        ('evolve', 'evolve', [*votes, texts, with_texts]),
        ('tune-refine', 'tune-refine', [*tune, *votes, texts, prompt]),
    )
    return [(name, ['generate', f'--method={method}', *common, *flags]) for name, method, flags in of_methods]


def _job(name: str, arguments: list[str], folder: pathlib.Path, size: Size) -> dict[str, Any]:
    """Seconds of a job: to its first finished batch, and to its end."""
    command = [sys.executable, '-m', 'pipeline.main', *arguments]
    command += [f'--output={folder / "corpus"}', f'--work-dir={folder / "work"}', f'--run-id={folder.name}']
    folder.mkdir(parents=True)
    environment = os.environ | {'DP_CORPUS_CACHE': str(folder.parent / 'cache')}
    began, first = time.perf_counter(), None
    with (folder / 'said').open('wb') as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        while process.poll() is None and time.perf_counter() - began < size.limit:
            time.sleep(POLL_SECONDS)
            if first is None and any((folder / 'work').glob('batches/*.json')):
                first = time.perf_counter() - began
        seconds, is_done = time.perf_counter() - began, process.poll() is not None
        process.kill()
    line = {
        'measures': 'job', 'job': name, 'model': MODEL, 'people': size.people, 'seconds': seconds,
        'first_batch_seconds': first, 'finished': is_done and process.returncode == 0,
    }  # fmt: skip
    if is_done and process.returncode:
        line['said'] = (folder / 'said').read_text(errors='replace')[-600:]
    return line


def checkpoint_of(folder: pathlib.Path) -> pathlib.Path | None:
    """Weights of `MODEL`: joined of their pieces in `folder`, else those that this machine has fetched."""
    pieces = sorted(folder.glob('part-*/weights-*'))
    if pieces:
        whole = folder / 'weights.gguf'
        if not whole.is_file():
            with whole.open('wb') as out:
                for piece in pieces:
                    out.write(piece.read_bytes())
        return whole
    known = family.files_of(MODEL).checkpoint
    return pathlib.Path(known) if os.path.isfile(known) else None
