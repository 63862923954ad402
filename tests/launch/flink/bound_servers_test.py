"""The one call that makes Beam's Java servers is changed, once, in the class alone."""

import pathlib
import struct
import zipfile

import pytest

from launch.flink import bound_servers

BUILDER = 'org/example/NettyServerBuilder'
# Numbers of constants, from 1: a long takes two.
CODE = b'\x2a\xb6\x00\x08\xb8\x00\x0f\xb0'


def utf8(text: str) -> bytes:
    return b'\x01' + struct.pack('>H', len(text)) + text.encode()


def made(name: str = 'forPort', code: bytes = CODE) -> bytes:
    """A class file that calls `new InetSocketAddress(...).getPort()` and hands that to a builder."""
    constants = [
        b'\x05' + bytes(8),  # 1 and 2
        utf8('java/net/InetSocketAddress'), b'\x07\x00\x03',  # 3, 4
        utf8('getPort'), utf8('()I'), b'\x0c\x00\x05\x00\x06', b'\x0a\x00\x04\x00\x07',  # 5 to 8
        utf8(BUILDER), b'\x07\x00\x09',  # 9, 10
        utf8(name), utf8(f'(I)L{BUILDER};'), b'\x0c\x00\x0b\x00\x0c',  # 11 to 13
        utf8('forAll'), b'\x0a\x00\x0a\x00\x0d',  # 14, 15
    ]  # fmt: skip
    head = b'\xca\xfe\xba\xbe\x00\x00\x00\x34' + struct.pack('>H', 16)
    return head + b''.join(constants) + b'\x00\x21' + code


def test_the_address_is_handed_over_in_place_of_its_port() -> None:
    found = bound_servers.bound(made())
    assert found.endswith(b'\x2a\x00\x00\x00\xb8\x00\x0f\xb0')
    constants = dict(bound_servers._constants(found))
    call = bound_servers._method(found, constants, 15)
    assert call == (BUILDER, 'forAddress', f'(Ljava/net/SocketAddress;)L{BUILDER};')
    assert len(constants) == len(dict(bound_servers._constants(made()))) + 3
    assert bound_servers.bound(found) == found


@pytest.mark.parametrize('code', [b'\xb0', 2 * CODE])
def test_servers_that_are_made_in_another_way_are_refused(code: bytes) -> None:
    with pytest.raises(ValueError, match=r'made by one call of NettyServerBuilder\.forPort, got calls='):
        bound_servers.bound(made(code=code))
    with pytest.raises(ValueError, match='got calls=0'):
        bound_servers.bound(made('forAll', code))


def test_a_jar_has_the_changed_class_once_and_all_else_as_it_was(tmp_path: pathlib.Path) -> None:
    jar = tmp_path / 'server.jar'
    with zipfile.ZipFile(jar, 'w') as archive:
        archive.writestr('before', b'1')
        archive.writestr(bound_servers._CLASS, made())
        archive.writestr('after', b'2')
    for _ in range(2):
        bound_servers.bind(jar)
        with zipfile.ZipFile(jar) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == {
                'before': b'1', 'after': b'2', bound_servers._CLASS: bound_servers.bound(made())
            }  # fmt: skip
            assert len(archive.namelist()) == 3


@pytest.mark.parametrize('is_archive', [True, False])
def test_what_is_no_job_server_is_refused(tmp_path: pathlib.Path, is_archive: bool) -> None:
    jar = tmp_path / 'other.jar'
    if is_archive:
        with zipfile.ZipFile(jar, 'w') as archive:
            archive.writestr('a', b'')
    else:
        jar.write_bytes(b'no archive')
    with pytest.raises(ValueError, match="a jar of Beam's job server, got jar=.*without the class"):
        bound_servers.bind(jar)
