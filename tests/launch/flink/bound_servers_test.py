"""The one call that makes Beam's Java servers is changed, once, in the class alone."""

import pathlib
import zipfile

import pytest

from launch.flink import bound_servers

CODE = b'|'.join(before for before, _ in bound_servers.CHANGES)


def jar_with(code: bytes, folder: pathlib.Path) -> pathlib.Path:
    jar = folder / 'server.jar'
    with zipfile.ZipFile(jar, 'w') as archive:
        archive.writestr('before', b'1')
        archive.writestr(bound_servers.CLASS, code)
        archive.writestr('after', b'2')
    return jar


def test_a_jar_has_the_changed_class_once_and_all_else_as_it_was(tmp_path: pathlib.Path) -> None:
    jar = jar_with(CODE, tmp_path)
    bound_servers.bind(jar)
    with zipfile.ZipFile(jar) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ['after', 'before', bound_servers.CLASS]
        assert (archive.read('before'), archive.read('after')) == (b'1', b'2')
        assert archive.read(bound_servers.CLASS) == b'|'.join(after for _, after in bound_servers.CHANGES)


@pytest.mark.parametrize('code', [CODE.replace(b'forPort', b'forAll'), 2 * CODE])
def test_servers_that_are_made_in_another_way_are_refused(code: bytes, tmp_path: pathlib.Path) -> None:
    jar = jar_with(code, tmp_path)
    with pytest.raises(ValueError, match='Expected the class of Beam .* Beam is another version'):
        bound_servers.bind(jar)
    with zipfile.ZipFile(jar) as archive:
        assert archive.read(bound_servers.CLASS) == code
