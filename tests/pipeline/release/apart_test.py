"""Files for the curator alone go nowhere near a corpus."""

import os
import pathlib
import stat

import pytest
import typer.testing

from pipeline import main
from pipeline.release import apart

SETTINGS = ('--delta', '1e-3', '--aggregate', 'mean', '--max-private-tokens', '8', '--batches-per-label', '1')


def finished(folder: pathlib.Path) -> pathlib.Path:
    """A corpus as a run leaves it."""
    (folder / 'data').mkdir(parents=True)
    for name in (
        'README.md',
        'privacy_report.html',
        'privacy_report.json',
        'data/train-00000-of-00001.parquet',
    ):
        (folder / name).touch()
    return folder


def test_a_file_is_its_owners_alone_and_is_never_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'audit.json'
    apart.write(path, 'é\n', apart.PAGE_OR_JSON)
    assert path.read_bytes() == 'é\n'.encode()
    if os.name == 'posix':
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match='a new file'):
        apart.write(path, 'other', apart.PAGE_OR_JSON)
    assert path.read_bytes() == 'é\n'.encode()


@pytest.mark.parametrize('inside', ['', 'data', 'data/deeper', 'notes', 'notes/of/mine'])
def test_nothing_is_written_into_a_corpus(tmp_path: pathlib.Path, inside: str) -> None:
    folder = finished(tmp_path / 'out') / inside
    folder.mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob('*'))
    for path in (folder / 'audit.json', tmp_path / 'out' / 'data' / '..' / inside / 'audit.json'):
        with pytest.raises(ValueError, match='Expected a folder without a corpus') as caught:
            apart.write(path, 'secret', apart.PAGE_OR_JSON)
        assert str(tmp_path / 'out') in str(caught.value)
    assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize('neighbour', ['data', 'privacy_report.json', 'privacy_report.html'])
def test_one_part_of_a_corpus_tells_of_it(tmp_path: pathlib.Path, neighbour: str) -> None:
    """A run makes its folder of shards first, and its report last."""
    (tmp_path / neighbour).mkdir()
    with pytest.raises(ValueError, match='without a corpus'):
        apart.check_file(tmp_path / 'audit.json', apart.PAGE_OR_JSON)


def test_shards_tell_of_a_corpus_whose_report_is_not_there_yet(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data' / 'train-00000-of-00002.parquet').touch()
    with pytest.raises(ValueError, match='without a corpus'):
        apart.check_file(tmp_path / 'data' / 'audit.json', apart.PAGE_OR_JSON)
    (tmp_path / 'README.md').touch()
    (tmp_path / 'notes').mkdir()
    with pytest.raises(ValueError, match='without a corpus'):
        apart.check_file(tmp_path / 'notes' / 'audit.json', apart.PAGE_OR_JSON)


def test_a_link_into_a_corpus_is_no_way_round(tmp_path: pathlib.Path) -> None:
    finished(tmp_path / 'out')
    (tmp_path / 'link').symlink_to(tmp_path / 'out', target_is_directory=True)
    with pytest.raises(ValueError, match='without a corpus'):
        apart.check_file(tmp_path / 'link' / 'audit.json', apart.PAGE_OR_JSON)
    (tmp_path / 'audit.json').symlink_to(tmp_path / 'out' / 'audit.json')  # leads to nothing yet
    with pytest.raises(FileExistsError, match='a new file'):
        apart.write(tmp_path / 'audit.json', 'secret', apart.PAGE_OR_JSON)
    assert not (tmp_path / 'out' / 'audit.json').exists()


def test_beside_the_folder_of_a_corpus_there_is_room(tmp_path: pathlib.Path) -> None:
    """So is a folder called `data` with other things in it."""
    finished(tmp_path / 'data' / 'out')
    (tmp_path / 'data' / 'audits').mkdir()
    apart.write(tmp_path / 'data' / 'audits' / 'audit.json', 'text', apart.PAGE_OR_JSON)


def test_what_is_there_or_ends_otherwise_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'folder.json').mkdir()
    with pytest.raises(FileExistsError, match='a new file'):
        apart.check_file(tmp_path / 'folder.json', apart.PAGE_OR_JSON)
    with pytest.raises(ValueError, match=r"ending in \.html or \.json, got path='a.txt'"):
        apart.check_file(tmp_path / 'a.txt', apart.PAGE_OR_JSON)
    with pytest.raises(FileNotFoundError, match='Expected a folder'):
        apart.check_file(tmp_path / 'absent' / 'a.json', apart.PAGE_OR_JSON)


@pytest.mark.parametrize(
    'command',
    [
        ['audit', 'canaries', *SETTINGS, '--result'],
        ['split', '--output'],
    ],
    ids=lambda command: ' '.join(command[:2]),
)
def test_every_command_that_writes_one_refuses_the_folder_of_a_corpus(
    tmp_path: pathlib.Path, command: list[str]
) -> None:
    """Before it reads a record: the input is not even there."""
    path = finished(tmp_path / 'out') / 'result.json'
    told = typer.testing.CliRunner().invoke(
        main.app, [*command, str(path), '--input', str(tmp_path / 'absent.jsonl')], env={'COLUMNS': '500'}
    )
    assert told.exit_code != 0
    assert 'without a corpus' in told.output + str(told.exception)
    assert not path.exists()
