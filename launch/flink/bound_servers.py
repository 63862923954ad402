"""Has the servers of a job server listen at the address that they are given, in place of every address.

Beam's Java servers announce localhost, and listen on all interfaces: the class below hands its port alone to
gRPC (`NettyServerBuilder.forPort`). Whoever reaches such a port runs code beside the records. Task managers
load the class from the job server's jar, so to change it there changes it for them as well. The change is one
call: `forAddress`, with the whole address, in place of `forPort`, with its port.
"""

import pathlib
import struct
import zipfile
from collections.abc import Iterator

_CLASS = 'org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class'
# Tags of constants (The Java Virtual Machine Specification, 4.4), and the bytes behind each tag.
_UTF8, _METHOD, _NAME_AND_TYPE = 1, 10, 12
_SIZES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_INVOKE_VIRTUAL, _INVOKE_STATIC = b'\xb6', b'\xb8'


def bind(jar: pathlib.Path) -> None:
    """Changes the class within a jar; one that is changed already stays as it is.

    Raises:
        ValueError: The jar is not of a job server of Beam, or of one whose servers are made in another way.
    """
    try:
        archive = zipfile.ZipFile(jar, 'a')
        entry = archive.getinfo(_CLASS)
    except (KeyError, zipfile.BadZipFile):
        raise ValueError(
            f"Expected a jar of Beam's job server, got jar={str(jar)!r} without the class of its servers. "
            'Leave the jar out: Maven fetches one.'
        ) from None
    with archive:
        before = archive.read(entry)
        after = bound(before)
        if after != before:
            # The index of the archive names the new one alone.
            archive.filelist.remove(entry)
            del archive.NameToInfo[_CLASS]
            archive.writestr(_CLASS, after, zipfile.ZIP_DEFLATED)


def bound(code: bytes) -> bytes:
    """The class with the changed call; itself where that was changed before.

    Raises:
        ValueError: It makes its servers in another way.
    """
    constants = dict(_constants(code))
    methods = {
        index: _method(code, constants, index) for index, (tag, _) in constants.items() if tag == _METHOD
    }
    builders = {index: found for index, found in methods.items() if found[0].endswith('/NettyServerBuilder')}
    if any(name == 'forAddress' for _, name, _ in builders.values()):
        return code
    calls = [index for index, (_, name, of) in builders.items() if name == 'forPort' and of.startswith('(I)')]
    ports = [
        index
        for index, (of, name, _) in methods.items()
        if (of, name) == ('java/net/InetSocketAddress', 'getPort')
    ]
    found = [
        (_INVOKE_VIRTUAL + struct.pack('>H', port) + _INVOKE_STATIC + struct.pack('>H', call))
        for port in ports for call in calls
    ]  # fmt: skip
    if len(found) != 1 or code.count(found[0]) != 1:
        raise ValueError(
            'Expected servers of Beam that are made by one call of NettyServerBuilder.forPort, got calls='
            f'{sum(map(code.count, found))}. Beam is another version: change launch/flink/bound_servers.py.'
        )
    (call,) = calls
    builder, count = builders[call][0], struct.unpack('>H', code[8:10])[0]
    added = b''.join(
        bytes([_UTF8]) + struct.pack('>H', len(text)) + text
        for text in (b'forAddress', f'(Ljava/net/SocketAddress;)L{builder};'.encode())
    ) + struct.pack('>BHH', _NAME_AND_TYPE, count, count + 1)
    end = max(place + 1 + _size(code, place) for _, place in constants.values())
    # The method's constant keeps its class, and takes the new name and type.
    at = constants[call][1] + 3
    count_of_all, named = struct.pack('>H', count + 3), struct.pack('>H', count + 2)
    head = code[:8] + count_of_all + code[10:at] + named + code[at + 2 : end]
    # The address is on the stack, and stays there: three bytes that do nothing.
    return head + added + code[end:].replace(found[0], bytes(3) + found[0][3:])


def _constants(code: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """(number, (tag, place of the tag)) of each constant."""
    place, number = 10, 1
    while number < struct.unpack('>H', code[8:10])[0]:
        tag = code[place]
        yield number, (tag, place)
        place += 1 + _size(code, place)
        number += 2 if tag in (5, 6) else 1  # of 64 bits: they take two numbers


def _size(code: bytes, place: int) -> int:
    """Bytes of a constant behind its tag."""
    if code[place] == _UTF8:
        return 2 + int(struct.unpack('>H', code[place + 1 : place + 3])[0])
    return _SIZES[code[place]]


def _method(code: bytes, constants: dict[int, tuple[int, int]], number: int) -> tuple[str, str, str]:
    """(class, name, descriptor) of a method that the class calls."""

    def pair(at: int) -> tuple[int, int]:
        first, second = struct.unpack('>HH', code[constants[at][1] + 1 : constants[at][1] + 5])
        return first, second

    def text(at: int) -> str:
        place = constants[at][1]
        return code[place + 3 : place + 1 + _size(code, place)].decode()

    owner, named = pair(number)
    (of_class,) = struct.unpack('>H', code[constants[owner][1] + 1 : constants[owner][1] + 3])
    name, descriptor = pair(named)
    return text(of_class), text(name), text(descriptor)
