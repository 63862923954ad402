"""The identity of a run: exactly the files that it reads, and everything that computes with them."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
from typing import Any

import apache_beam as beam
import pytest

from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.run import digests, folders, identity
from pipeline.run.record_rules import record_rules
from pipeline.settings.job_config import JobConfig
from transforms import read, run_files


def config(folder: pathlib.Path, **settings: Any) -> JobConfig:
    given = {
        'input': str(folder / 'in*.jsonl'), 'output': str(folder / 'out'), 'delta': 1e-3,
        'aggregate': 'mean', 'max_private_tokens': 8, 'batch_size': 8, 'batches_per_label': 1,
    }  # fmt: skip
    return job_config(**(given | settings))


def write_record(path: pathlib.Path, text: str) -> None:
    path.write_text(json.dumps({'text': text}) + '\n', encoding='utf-8')


# --- The input -------------------------------------------------------------------


@pytest.mark.parametrize('name', ['in[1].jsonl', 'in[!a].jsonl', 'in*.jsonl', 'in?.jsonl', 'in[.jsonl'])
def test_a_name_that_is_a_pattern_too_is_a_part_of_the_digest(tmp_path: pathlib.Path, name: str) -> None:
    run = config(tmp_path)
    write_record(tmp_path / 'in.jsonl', 'A record.')
    without = identity.fingerprint(methods.solve(run, launch=True))['input']
    write_record(tmp_path / name, 'Another one.')
    first = identity.fingerprint(methods.solve(run, launch=True))['input']
    write_record(tmp_path / name, 'A third one.')
    assert len({without, first, identity.fingerprint(methods.solve(run, launch=True))['input']}) == 3


@pytest.mark.parametrize('name', ['in[1].jsonl', 'in[!a].jsonl', 'in*.jsonl', 'in?.jsonl'])
def test_a_file_that_is_called_as_a_pattern_is_meant_itself(tmp_path: pathlib.Path, name: str) -> None:
    run = config(tmp_path, input=str(tmp_path / name))
    for decoy in ('in1.jsonl', 'inb.jsonl'):
        write_record(tmp_path / decoy, 'Of somebody else.')
    write_record(tmp_path / name, 'A record.')
    assert identity.input_files(methods.solve(run, launch=True)) == [str(tmp_path / name)]
    before = identity.fingerprint(methods.solve(run, launch=True))['input']
    write_record(tmp_path / name, 'Another one.')
    assert identity.fingerprint(methods.solve(run, launch=True))['input'] != before


def test_the_digest_is_of_the_files_that_are_read_and_of_no_other(tmp_path: pathlib.Path) -> None:
    """`in[1].jsonl` is a pattern of `in1.jsonl`, which is no input here."""
    run = config(tmp_path, input=str(tmp_path / 'in[[]*.jsonl'))
    write_record(tmp_path / 'in[1].jsonl', 'A record.')
    assert identity.input_files(methods.solve(run, launch=True)) == [str(tmp_path / 'in[1].jsonl')]
    before = identity.fingerprint(methods.solve(run, launch=True))['input']
    write_record(tmp_path / 'in1.jsonl', 'Of somebody else.')
    assert identity.fingerprint(methods.solve(run, launch=True))['input'] == before


def test_a_list_of_names_with_commas_is_the_same_input_from_everywhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ('a,b.jsonl', 'c.jsonl', 'Smith, J/d.jsonl')
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_record(tmp_path / name, name)
    given = ('a,b.jsonl, c.jsonl,Smith, J/*.jsonl', 'c.jsonl,a,b.jsonl,./Smith, J/**/*.jsonl', '**/*.jsonl')
    monkeypatch.chdir(tmp_path)
    runs = [config(tmp_path, input=each) for each in given]
    files = sorted(f'{tmp_path}/{name}' for name in names)
    assert [identity.input_files(methods.solve(run, launch=True)) for run in runs] == [files] * 3
    known = [identity.fingerprint(methods.solve(run, launch=True))['input'] for run in runs]
    assert len(set(known)) == 1
    absolute = methods.solve(runs[0], launch=True).config
    assert absolute.input.input == f'{tmp_path}/a,b.jsonl,{tmp_path}/c.jsonl,{tmp_path}/Smith, J/*.jsonl'
    assert methods.solve(absolute, launch=True).config == absolute
    monkeypatch.chdir('/')
    assert identity.fingerprint(methods.solve(absolute, launch=True))['input'] == known[0]


def test_a_changed_setting_is_named_with_both_values(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path, record_id_field='id')
    (tmp_path / 'in.jsonl').write_text(json.dumps({'text': 'A record.', 'id': '1'}) + '\n', encoding='utf-8')
    folders.check(methods.solve(run, launch=True))  # none has begun
    folders.prepare(methods.solve(run, launch=True))
    folders.check(methods.solve(run, launch=True))
    folders.check(methods.solve(run.replace(runner='DirectRunner'), launch=True))
    other = run.replace(batch_size=16, record_id_field=None, corpus_description='Letters.')
    with pytest.raises(FileExistsError, match=r"changed=\['config'\]") as refused:
        folders.check(methods.solve(other, launch=True))
    said = str(refused.value)
    assert '--batch-size was 8 and is 16. ' in said
    assert "--corpus-description was 'A collection of texts, one after another.' and is 'Letters.'. " in said
    assert "--record-id-field was 'id' and is None. " in said
    assert said.count(' was ') == 3
    with pytest.raises(FileExistsError) as again:
        folders.prepare(methods.solve(other, launch=True))
    assert str(again.value) == said


def test_other_files_than_those_that_were_looked_at_get_no_digest(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path)
    write_record(tmp_path / 'in.jsonl', 'A record.')
    files = identity.input_files(methods.solve(run, launch=True))
    write_record(tmp_path / 'in2.jsonl', 'A late one.')
    with pytest.raises(ValueError, match=r'new=\[.*in2\.jsonl.\], missing=\[\]'):
        identity.fingerprint(methods.solve(run, launch=True), files)


def test_other_files_than_those_of_the_digest_are_not_read(tmp_path: pathlib.Path) -> None:
    run = config(tmp_path)
    write_record(tmp_path / 'in.jsonl', 'A record.')
    files = folders.prepare(methods.solve(run, launch=True))
    (tmp_path / 'in.jsonl').rename(tmp_path / 'in2.jsonl')
    rules = record_rules(run.input, run.budget.unit)
    with pytest.raises(ValueError, match=r'new=\[.*in2\.jsonl.\], missing=\[.*in\.jsonl.\]'):
        _ = beam.Pipeline() | read.ReadRecords(str(run.input.input), rules, files)


# --- The model -------------------------------------------------------------------


def test_weights_in_one_file_are_known_by_content_whatever_their_size_and_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, 'HASHED_BYTES', 10)
    write_record(tmp_path / 'in.jsonl', 'A record.')
    file = tmp_path / 'weights.gguf'
    file.write_bytes(b'GGUF' + bytes(60))
    run = config(tmp_path, model='gemma3-1b', checkpoint=str(file), tokenizer=str(file))
    first = identity.fingerprint(methods.solve(run, launch=True))['model']
    os.utime(file, (1, 1))
    assert identity.fingerprint(methods.solve(run, launch=True))['model'] == first
    file.write_bytes(b'GGUF' + bytes(59) + b'1')
    os.utime(file, (1, 1))
    assert identity.fingerprint(methods.solve(run, launch=True))['model'] != first
    # The weights count where the tokenizer is another file, and under their own name.
    text = tmp_path / 'tokenizer.model'
    text.write_bytes(bytes(5))
    apart = run.replace(tokenizer=str(text))
    second = identity.fingerprint(methods.solve(apart, launch=True))['model']
    file.write_bytes(b'GGUF' + bytes(60))
    assert len({first, second, identity.fingerprint(methods.solve(apart, launch=True))['model']}) == 3


# --- The code --------------------------------------------------------------------


def test_every_library_that_decides_a_records_place_or_a_draw_is_known() -> None:
    names = {
        'jax', 'jaxlib', 'flax', 'gemma', 'orbax-checkpoint', 'safetensors', 'zstandard', 'tensorstore',
        'scikit-learn', 'scipy', 'numpy', 'pyarrow', 'tokenizers', 'sentencepiece', 'tensorflow',
        'tensorflow-text', 'apache-beam', 'dp-accounting', 'ml-dtypes', 'gguf', 'dp-corpus',
    }  # fmt: skip
    found = identity.installed_versions()
    assert names - {'tokenizers'} <= set(found)
    for name in names & set(found):
        assert found[name] == importlib.metadata.version(name)
    # It comes with an extra.
    try:
        assert found['tokenizers'] == importlib.metadata.version('tokenizers')
    except importlib.metadata.PackageNotFoundError:
        assert 'tokenizers' not in found


def test_another_version_of_a_library_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = identity.installed_versions()
    found = set()
    for changed in ({}, {'scikit-learn': '99'}, {'jaxlib': '99'}, {'zstandard': '99'}):
        monkeypatch.setattr(identity, 'installed_versions', lambda changed=changed: installed | changed)
        found.add(identity._code_digest.__wrapped__())
    assert len(found) == 4


def test_a_work_directory_of_older_code_is_refused_with_its_reason(tmp_path: pathlib.Path) -> None:
    """As one that this package wrote when it digested the versions of its report alone."""
    run = config(tmp_path)
    write_record(tmp_path / 'in.jsonl', 'A record.')
    sources = digests.digest_of_files(
        path
        for package in ('models', 'transforms', 'pipeline')
        for path in (pathlib.Path(identity.__file__).parents[2] / package).rglob('*')
        if path.suffix in ('.py', '.jinja')
    )
    versions = json.dumps(identity.software_versions(), sort_keys=True)
    code = hashlib.sha256(f'{sources}\n{versions}'.encode()).hexdigest()
    work_dir = pathlib.Path(run.output.curator)
    work_dir.mkdir()
    (work_dir / run_files.RUN).write_text(
        json.dumps(identity.fingerprint(methods.solve(run, launch=True)) | {'code': code})
    )
    with pytest.raises(
        FileExistsError, match=r"changed=\['code'\]. Another version of dp-corpus or of a lib"
    ):
        folders.prepare(methods.solve(run, launch=True))


def test_weights_are_hashed_once_however_often_a_run_is_asked_who_it_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything loads, again when the folders are made, and for the ledger."""
    write_record(tmp_path / 'in.jsonl', 'A record.')
    file = tmp_path / 'weights.gguf'
    file.write_bytes(b'GGUF' + bytes(60))
    run = config(tmp_path, model='gemma3-1b', checkpoint=str(file), tokenizer=str(file))
    read: list[str] = []
    digest = hashlib.file_digest

    def counted(opened: Any, name: str) -> Any:
        read.append(opened.name)
        return digest(opened, name)

    monkeypatch.setattr(hashlib, 'file_digest', counted)
    folders.prepare(methods.solve(run, launch=True))
    folders.check(methods.solve(run, launch=True))
    folders.prepare(methods.solve(run, launch=True))
    assert read.count(str(file)) == 1
    # A change of the same size: it is the system's times that tell.
    file.write_bytes(b'GGUF' + bytes(59) + b'1')
    with pytest.raises(FileExistsError, match='The weights'):
        folders.check(methods.solve(run, launch=True))
    assert read.count(str(file)) == 2
