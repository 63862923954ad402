"""Has the servers of a job server listen at the address that they are given, in place of every address.

Beam's Java servers announce localhost, and listen on all interfaces: the class below hands its port alone to
gRPC (`NettyServerBuilder.forPort`). Whoever reaches such a port runs code beside the records. Task managers
load the class from the job server's jar, so to change it there changes it for them as well. The change is one
call: `forAddress`, with the whole address, in place of `forPort`, with its port.
"""

import pathlib
import zipfile

CLASS = 'org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class'
_TYPE = b'(Ljava/net/SocketAddress;)Lorg/apache/beam/vendor/grpc/v1p60p1/io/grpc/netty/NettyServerBuilder;'
_END_OF_CONSTANTS = bytes.fromhex('0021 0002 0004 0000')
# (bytes in the class of Beam 2.62.0, the version of pom.xml; what takes their place). `javap -v` shows the
# numbers of constants; The Java Virtual Machine Specification, chapter 4, shows the rest.
CHANGES = (
    # 260 constants become 261; the last one is the type of the new call.
    (bytes.fromhex('cafebabe 0000 0034 0104'), bytes.fromhex('cafebabe 0000 0034 0105')),
    (_END_OF_CONSTANTS, b'\x01' + len(_TYPE).to_bytes(2) + _TYPE + _END_OF_CONSTANTS),
    (b'\x01\x00\x07forPort', b'\x01\x00\x0aforAddress'),
    # The call is of name 163 and type 164, then of type 260.
    (bytes.fromhex('0c 00a3 00a4'), bytes.fromhex('0c 00a3 0104')),
    # Before the call the address is on the stack. It stays there: three bytes do nothing in place of getPort.
    (bytes.fromhex('b6 00a0 b8 00a6'), bytes.fromhex('000000 b8 00a6')),
)


def bind(jar: pathlib.Path) -> None:
    """Changes the class within a job server's jar; a ValueError where Beam is of another version."""
    with zipfile.ZipFile(jar, 'a') as archive:
        entry = archive.getinfo(CLASS)
        code = archive.read(entry)
        for before, after in CHANGES:
            if code.count(before) != 1:
                raise ValueError(
                    f'Expected the class of Beam 2.62.0 that makes servers, got {before.hex()!r} '
                    f'{code.count(before)} times in jar={str(jar)!r}. Beam is another version: change '
                    'launch/flink/bound_servers.py.'
                )
            code = code.replace(before, after)
        # The index of the archive names the new class alone.
        archive.filelist.remove(entry)
        del archive.NameToInfo[CLASS]
        archive.writestr(CLASS, code, zipfile.ZIP_DEFLATED)
