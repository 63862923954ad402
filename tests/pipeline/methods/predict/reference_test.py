"""The curator's reference: what is read of files and releases, and what is refused."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from models.records import SyntheticExample
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict.graph import generator_settings
from pipeline.methods.predict.reference import read_reference
from pipeline.run import identity
from pipeline.settings.job_config import JobConfig
from tests import oracles
from tests.models.privacy.report.samples import released_report
from transforms import predict, run_files, write

LABELS = ('Billing', 'Delivery')
TEXTS = [f'Public text {number}.' for number in range(12)]


def config(folder: pathlib.Path, **settings: Any) -> JobConfig:
    if not (folder / 'in.jsonl').exists():
        (folder / 'in.jsonl').write_text('{"text": "A record.", "label": "Billing"}\n')
    given = {
        'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'), 'delta': 1e-3, 'labels': LABELS,
        'label_field': 'label', 'max_private_tokens': 8, 'batch_size': 8, 'batches_per_label': 1,
        'aggregate': 'difference', 'accounting': 'worst-case', 'reference': str(folder / 'public.jsonl'),
        'reference_size': 3,
    }  # fmt: skip
    return job_config(**(given | settings))


def write_texts(path: pathlib.Path, texts: Sequence[str], **columns: Sequence[object]) -> str:
    frame = pd.DataFrame({'text': texts, **columns})
    if path.suffix == '.parquet':
        frame.to_parquet(path)
    elif path.suffix == '.csv':
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient='records', lines=True)
    return str(path)


def texts_of(run: JobConfig) -> dict[str | None, list[str]]:
    found = read_reference(run)
    assert found is not None
    return {label: list(texts) for label, texts in found.texts}


# --- Files -----------------------------------------------------------------------


@pytest.mark.parametrize('suffix', ['jsonl', 'jsonl.gz', 'csv', 'parquet'])
def test_texts_of_a_file_serve_all_labels(tmp_path: pathlib.Path, suffix: str) -> None:
    run = config(tmp_path, reference=write_texts(tmp_path / f'public.{suffix}', [*TEXTS, *TEXTS[:3]]))
    assert texts_of(run) == dict.fromkeys(LABELS, oracles.pick_texts(TEXTS, 3))


def test_texts_of_a_file_with_labels_serve_their_own(tmp_path: pathlib.Path) -> None:
    labels = ('Billing', 'Delivery', 'Complaints') * 4
    write_texts(tmp_path / 'public.jsonl', TEXTS, topic=labels)
    run = config(tmp_path, reference_label_field='topic')
    of = {label: [text for text, own in zip(TEXTS, labels, strict=True) if own == label] for label in LABELS}
    assert texts_of(run) == {label: oracles.pick_texts(of[label], 3) for label in LABELS}


def test_several_files_are_one_reference_whatever_their_order(tmp_path: pathlib.Path) -> None:
    for part in range(3):
        write_texts(tmp_path / f'public-{part}.jsonl', TEXTS[part::3])
    run = config(tmp_path, reference=f'{tmp_path}/public-2.jsonl,{tmp_path}/public-[01].jsonl')
    assert texts_of(run) == dict.fromkeys(LABELS, oracles.pick_texts(TEXTS, 3))


def test_rows_that_are_no_texts_are_left_out(tmp_path: pathlib.Path) -> None:
    write_texts(tmp_path / 'public.jsonl', [*TEXTS, ' ', '', 'long' * 100])
    with (tmp_path / 'public.jsonl').open('ab') as file:
        file.write(b'{"text": "\xff"}\n{"text": 7}\n{"no": "text"}\nnonsense\n')
    run = config(tmp_path, reference_size=12, max_record_bytes=100)
    assert sorted(texts_of(run)['Billing']) == sorted(TEXTS)


def test_workers_get_what_a_prompt_could_use_and_the_digest_is_of_whole_texts(tmp_path: pathlib.Path) -> None:
    long = ['word ' * 5000 + str(number) for number in range(3)]
    write_texts(tmp_path / 'public.jsonl', long)
    run = config(tmp_path, max_prompt_tokens=64)
    settings, whole = generator_settings(methods.solve(run, launch=True)).reference, read_reference(run)
    assert settings is not None and whole is not None
    assert settings.digest == whole.digest and settings.shared_hashes == whole.shared_hashes
    assert settings.of_label('Billing') == tuple(text[: 64 * 32] for text in whole.of_label('Billing'))


def test_the_texts_are_a_part_of_what_a_run_is(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path)
    path = tmp_path / 'public.jsonl'
    write_texts(path, TEXTS)
    first = identity.fingerprint(methods.solve(run, launch=True))
    # The same texts in another order, and more that are not picked.
    write_texts(path, [*TEXTS[::-1], *TEXTS])
    assert identity.fingerprint(methods.solve(run, launch=True)) == first
    gone = oracles.pick_texts(TEXTS, 3)[0]
    write_texts(path, [text for text in TEXTS if text != gone])
    assert identity.fingerprint(methods.solve(run, launch=True))['model'] != first['model']
    assert identity.fingerprint(methods.solve(run, launch=True))['input'] == first['input']


# --- An earlier release ----------------------------------------------------------


def an_example(index: int, label: str | None, **fields: Any) -> SyntheticExample:
    given = {
        'text': f'Released text {index}.', 'label': label, 'batch_id': '0000-000000', 'index_in_batch': index,
        'private_tokens': 6, 'public_tokens': 3, 'truncated': False,
    }  # fmt: skip
    return SyntheticExample(**(given | fields))


def write_release(
    folder: pathlib.Path, examples: Sequence[SyntheticExample], statement: str = 'differential privacy'
) -> str:
    (folder / run_files.DATA_FOLDER).mkdir(parents=True)
    for shard, part in enumerate((examples[::2], examples[1::2])):
        path = folder / run_files.DATA_FOLDER / write.shard_name(shard, 2)
        path.write_bytes(write.encode_shard(part, predict.COLUMNS))
    (folder / run_files.REPORT).write_text(released_report('earlier', statement=statement))
    return str(folder)


def test_complete_examples_of_a_release_are_texts_of_their_labels(tmp_path: pathlib.Path) -> None:
    good = [an_example(index, LABELS[index % 2]) for index in range(20)]
    bad = [
        an_example(20, 'Billing', truncated=True), an_example(21, 'Billing', text=' '),
        an_example(22, 'Billing', private_tokens=4), an_example(23, 'Undeclared'),
    ]  # fmt: skip
    run = config(tmp_path, reference=write_release(tmp_path / 'earlier', [*bad, *good]), reference_size=10)
    assert {label: sorted(texts) for label, texts in texts_of(run).items()} == {
        label: sorted(one.text for one in good if one.label == label) for label in LABELS
    }
    found = read_reference(run)
    assert found is not None and [of.run_id for of in found.origin.given.sources] == ['earlier']
    assert not found.origin.vouched


@pytest.mark.parametrize(
    'own, labels', [(None, LABELS), ('Billing', ())], ids=['release without labels', 'run without labels']
)
def test_where_one_has_no_labels_texts_of_a_release_serve_all(
    tmp_path: pathlib.Path, own: str | None, labels: tuple[str, ...]
) -> None:
    examples = [an_example(index, own) for index in range(9)]
    run = config(
        tmp_path, reference=write_release(tmp_path / 'earlier', examples), labels=labels,
        label_field='label' if labels else None,
    )  # fmt: skip
    assert texts_of(run) == dict.fromkeys(
        labels or (None,), oracles.pick_texts([one.text for one in examples], 3)
    )


# --- Refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    'texts, settings, match',
    [
        ([], {}, r'reference_size=3 .* got 0 of label'),
        (TEXTS[:2] * 4, {}, r"reference_size=3 .* got 2 of label 'Billing', 2 of label 'Delivery'.*lower"),
        (TEXTS[:2], {'labels': (), 'label_field': None}, 'reference_size=3 .* got 2 in'),
        (TEXTS, {'reference_size': 13}, 'lower --reference-size'),
        (TEXTS, {'text_field': 'body'}, "without missing=.'body'."),
        (TEXTS, {'reference_label_field': 'topic'}, "without missing=.'topic'."),
    ],
)
def test_a_poor_file_is_refused(
    tmp_path: pathlib.Path, texts: list[str], settings: dict[str, Any], match: str
) -> None:
    path = tmp_path / 'public.jsonl'
    write_texts(path, texts or [' '])
    with pytest.raises(ValueError, match=match):
        read_reference(config(tmp_path, **settings))


def test_too_few_texts_of_one_label_are_refused(tmp_path: pathlib.Path) -> None:
    write_texts(tmp_path / 'public.jsonl', TEXTS, topic=['Billing'] * 11 + ['Delivery'])
    with pytest.raises(ValueError, match=r"got 1 of label 'Delivery' in .*--reference-label-field"):
        read_reference(config(tmp_path, reference_label_field='topic'))


def test_files_that_are_not_there_or_not_whole_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='--reference'):
        read_reference(config(tmp_path))
    path = pathlib.Path(write_texts(tmp_path / 'public.jsonl.gz', TEXTS))
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(ValueError, match=r'reference file=.*Fetch it again'):
        read_reference(config(tmp_path, reference=str(path)))


def test_a_shard_of_the_input_is_no_reference(tmp_path: pathlib.Path) -> None:
    folder = write_release(tmp_path / 'earlier', [an_example(index, 'Billing') for index in range(9)])
    run = config(tmp_path, reference=folder, input=f'{folder}/data/*.parquet')
    with pytest.raises(ValueError, match='--input names too'):
        read_reference(run)


def test_a_release_without_epsilon_is_refused(tmp_path: pathlib.Path) -> None:
    examples = [an_example(index, None) for index in range(9)]
    run = config(tmp_path, reference=write_release(tmp_path / 'earlier', examples, 'ex-post'))
    with pytest.raises(ValueError, match="statement='ex-post'.*choose another release"):
        read_reference(run)


def test_a_folder_that_is_no_finished_release_is_refused(tmp_path: pathlib.Path) -> None:
    folder = write_release(tmp_path / 'earlier', [an_example(0, None)])
    run = config(tmp_path, reference=folder)
    with pytest.raises(ValueError, match='leave --reference-label-field out'):
        read_reference(run.replace(reference_label_field='label'))
    with pytest.raises(ValueError, match='reference_size=3 .* got 1 of label'):
        read_reference(run)
    shard = next((tmp_path / 'earlier' / 'data').iterdir())
    shard.write_bytes(b'PAR1 or not')
    with pytest.raises(ValueError, match='Expected a shard of a corpus'):
        read_reference(run)
    (tmp_path / 'earlier' / run_files.REPORT).unlink()
    with pytest.raises(ValueError, match=f'a folder without {run_files.REPORT}'):
        read_reference(run)


@pytest.mark.parametrize(
    'settings, match',
    [
        ({'reference_size': 0}, 'reference_size >= 1'),
        ({'reference_rounds': 2}, 'one source of the reference'),
        ({'reference_rounds': 0}, 'reference_rounds 1 or 2'),
        ({'reference_rounds': 3, 'reference': None}, 'reference_rounds 1 or 2'),
        ({'reference': None, 'reference_label_field': 'topic'}, 'reference_label_field with reference only'),
        ({'aggregate': 'mean'}, 'give --aggregate difference'),
        ({'aggregate': 'median', 'reference': None, 'reference_rounds': 2}, 'give --aggregate difference'),
        ({'labels': (), 'label_field': None, 'reference_label_field': 'topic'}, 'Declare --labels'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: pathlib.Path, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        config(tmp_path, **settings)
