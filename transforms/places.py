"""The places that an `--input` names, by its text and the names of files: files, a database or a data set.

Nothing is opened here, and nothing heavy is imported but for a URL with a comma: settings are checked before
a library loads.
"""

import os
import re
import unicodedata
import urllib.parse
from collections.abc import Mapping, Sequence

from models import extras

# Databases by the first part of their URLs. Others are known by name, so that an error can name these two.
POSTGRESQL, SQLITE = 'postgresql', 'sqlite'
_DATABASES = frozenset(
    {
        POSTGRESQL, 'postgres', SQLITE, 'mysql', 'mariadb', 'mssql', 'oracle', 'db2', 'duckdb', 'snowflake',
        'bigquery', 'redshift', 'cockroachdb', 'trino', 'hive',
    }
)  # fmt: skip
DATASET = 'hf://'
# Before the absolute path of a file of this machine, as some programs give it.
_LOCAL = re.compile(r'file:(?://(?:localhost)?)?/+', re.IGNORECASE)
# Begins the part of a path that makes it a glob.
_WILDCARD = re.compile(r'[*?[]')
# Linux takes no name of more bytes.
_LONGEST_NAME = 255
# A path of Google's object store, alone or in a list.
GOOGLE = 'gs://'
# From a password in a URL, for this process and those that it starts; see `take_password`.
PASSWORD_VARIABLE = 'DP_CORPUS_DATABASE_PASSWORD'
CONNECT_SECONDS = 10
_SQLITE_FILE = 'sqlite:///'
# Endings of compressed files of text.
_CODECS = ('.gz', '.bz2', '.xz', '.zst')
_PORT = re.compile(r'[^:/@?]*:\d+(?:[/?]|$)')


def split_patterns(pattern: str) -> list[str]:
    """The paths and globs of a comma-separated list; the URL of a database is one, whatever it holds.

    A comma belongs to a name where a file, a folder or a data set of that name is there, also a folder that
    a glob begins with. A path is the one that is there: as it was typed, else without spaces around it,
    without `file://`, with `~` for the folder of a user, or with its accents composed or decomposed.

    Raises:
        ValueError: Two names with commas that are there share a part of the list.

    >>> split_patterns('notes.csv, file:///data/notes.csv')
    ['notes.csv', '/data/notes.csv']
    """
    if is_database(pattern):
        return [pattern.strip()]
    parts = pattern.split(',')
    paths, end = [], 0
    for begin, part in enumerate(parts):
        name, after = _longest(parts, begin)
        if begin >= end:
            paths.append(_path_of(part) if name is None else name)
            end = after
        elif after > end:
            raise ValueError(
                f'Expected a list that can be read in one way, got input={pattern!r} with two names with a '
                'comma that share a part. Give a ? for a comma of a name.'
            )
    return [path for path in paths if path]


def _longest(parts: Sequence[str], begin: int) -> tuple[str | None, int]:
    """The longest name with commas that is there and begins with a part, and the part after its last one."""
    name, after, text = None, begin + 1, parts[begin]
    comma, is_of_machine = len(text), '://' not in text
    for end, part in enumerate(parts[begin + 1 :], begin + 2):
        if '://' in part or not (part or is_of_machine):
            break
        text += f',{part}'
        if is_of_machine:
            # Every longer one has this name too, of a folder, or a longer name.
            above, slash, _ = text[comma:].partition('/')
            named = text[:comma] + above
            if slash and not os.path.isdir(_path_of(named)) or len(named.rpartition('/')[2]) > _LONGEST_NAME:
                break
        path = _path_of(text)
        # The folder that a glob begins with.
        folder = os.path.dirname(_WILDCARD.split(path)[0])
        if _is_there(path) or (
            _WILDCARD.search(path) and ',' not in path[len(folder) :] and _is_there(folder)
        ):
            name, after = path, end
    return name, after


def _path_of(text: str) -> str:
    """The path that is there of those that a text may mean; without a space at its ends where none is."""
    stripped = text.strip()
    if '://' in stripped and not _LOCAL.match(stripped):
        return stripped
    if _LOCAL.match(stripped):
        path = _LOCAL.sub('/', stripped, count=1)
        meant = [path, urllib.parse.unquote(path)]
    else:
        meant = [text, stripped, os.path.expanduser(stripped)]
    otherwise = meant[0] if _LOCAL.match(stripped) else meant[-1]
    composed = [unicodedata.normalize('NFC', path) for path in meant]
    meant += [*composed, *(unicodedata.normalize('NFD', path) for path in composed)]
    # No file has a glob's own name.
    return next(filter(os.path.exists, dict.fromkeys(meant)), otherwise)


def _is_there(path: str) -> bool:
    """True if a path or a URL of one file, or a data set on this machine, is there."""
    if '://' not in path or is_dataset(path):
        return os.path.exists(path.removeprefix(DATASET))
    # Loads for a URL with a comma alone.
    from apache_beam.io.filesystems import FileSystems

    check_filesystem(path)
    return FileSystems.exists(path)


def none_found(part: str, pattern: str) -> FileNotFoundError:
    """The error over one of the patterns of a list (`part` of `pattern`), a path or glob without a file."""
    remedy = 'Check the path, and that this machine may list it.'
    if ',' in pattern:
        remedy += (
            f' The comma in input={pattern!r} separates two patterns, since no file has the whole name: in a '
            'glob give a ? for a comma of a name, and write all paths out that {a,b} stands for.'
        )
    if '\\' in part:
        remedy += ' Folders have / between them here.'
    return FileNotFoundError(f'Expected files for each pattern, got none for pattern={part!r}. {remedy}')


def check_local_files(pattern: str) -> None:
    """Refuses a plain path of this machine that is not there; `transforms.read` looks at other places."""
    for path in split_patterns(pattern):
        is_plain = '://' not in path and not path.endswith('/')
        if is_plain and not set(path) & set('*?[') and not os.path.exists(path):
            raise none_found(path, pattern)


def is_database(place: str) -> bool:
    """True if a text is the URL of a database."""
    scheme, separator, _ = place.strip().partition('://')
    return bool(separator) and scheme.lower().partition('+')[0] in _DATABASES


def is_dataset(place: str) -> bool:
    """True if a text names a Hugging Face data set, on disk or by its name."""
    return place.startswith(DATASET)


def check_filesystem(*places: str | None) -> None:
    """Refuses places of an object store whose client is not installed."""
    for place in places:
        if place is not None and GOOGLE in place:
            extras.need(extras.GCP, use=f'the path {place!r}')


def is_workbook(place: str) -> bool:
    """True if a path or glob names Excel workbooks."""
    return place.lower().endswith('.xlsx')


def may_be_text(place: str) -> bool:
    """True if a path or glob can name files of text, a folder of them among these."""
    if is_database(place) or is_dataset(place):
        return False
    return not place.lower().endswith(('.parquet', '.xlsx'))


def may_be_csv(place: str) -> bool:
    """True if a path or glob can name CSV files; a folder of texts has none."""
    name = place.lower()
    for codec in _CODECS:
        name = name.removesuffix(codec)
    is_folder = name.endswith('/') or os.path.isdir(place)
    return may_be_text(place) and not is_folder and not name.endswith(('.jsonl', '.ndjson', '.json'))


def sqlite_file(place: str) -> str | None:
    """The file of a SQLite database; None for another place."""
    return place[len(_SQLITE_FILE) :] if place.lower().startswith(_SQLITE_FILE) else None


def with_absolute_path(place: str, *, is_local: bool) -> str:
    """A path, glob or URL with an absolute path of this machine: workers have another working directory."""
    if (file := sqlite_file(place)) is not None:
        return _SQLITE_FILE + os.path.abspath(file)
    if is_dataset(place) and os.path.exists(place.removeprefix(DATASET)):
        return DATASET + os.path.abspath(place.removeprefix(DATASET))
    return os.path.abspath(place) if is_local else place


def take_password(place: str) -> tuple[str, str | None]:
    """The URL of a database without its password, and the password; None without one.

    >>> take_password('postgresql://ward:s%40cret@db.example/notes')
    ('postgresql://ward@db.example/notes', 's@cret')
    """
    if not is_database(place):
        return place, None
    scheme, _, rest = place.strip().partition('://')
    password = None
    # A password may hold what should have been written as %40, %2F or %3F.
    head = rest.partition('?')[0]
    user, at, host = rest.rpartition('@')
    if '@' in head:
        user, at, host = head.rpartition('@')
        host += rest[len(head) :]
    elif _PORT.match(rest):
        user, at, host = '', '', rest
    name, colon, quoted = user.partition(':')
    if at and colon and '/' not in name:
        password = urllib.parse.unquote(quoted)
        rest = f'{name}@{host}'
    address, question, query = rest.partition('?')
    kept = []
    for pair in query.split('&') if question else ():
        name, _, value = pair.partition('=')
        if urllib.parse.unquote(name).lower() == 'password':
            password = urllib.parse.unquote_plus(value)
        else:
            kept.append(pair)
    return f'{scheme}://{address}' + (f'?{"&".join(kept)}' if kept else ''), password


def has_password(place: str) -> bool:
    """True if a URL of a database holds a password, also one of a key file (sslpassword)."""
    names = re.findall(r'[?&]([^=&]*)=', place) if is_database(place) else []
    return take_password(place)[1] is not None or any('password' in name.lower() for name in names)


def connect_arguments(host: str | None, query: Mapping[str, object]) -> dict[str, str | int]:
    """Arguments of a connection to PostgreSQL beside its URL, by the driver's names: a limit, TLS elsewhere.

    The driver would go on without TLS where a server, or whoever answers for it, offers none. What the URL,
    PGSSLMODE or a service file says goes before it.
    """
    arguments: dict[str, str | int] = (
        {} if 'connect_timeout' in query else {'connect_timeout': CONNECT_SECONDS}
    )
    named = [host, query.get('host'), query.get('hostaddr'), os.environ.get('PGHOST')]
    hosts = ','.join(str(one) for one in named if one).split(',')
    is_chosen = {'sslmode', 'service'} & query.keys() or {'PGSSLMODE', 'PGSERVICE'} & os.environ.keys()
    if not is_chosen and not all(map(_is_here, hosts)):
        arguments['sslmode'] = 'require'
    return arguments


def _is_here(host: str) -> bool:
    """True if a host is a socket of this machine, or a name of itself."""
    return host in ('', 'localhost', '::1') or host.startswith(('/', '@', '127.'))


def stem_of(records: str) -> str:
    """A name for what is made of records: that of the first file, database or data set.

    >>> stem_of('visits/2026 May.csv,more.csv'), stem_of('postgresql://me@host/tickets')
    ('2026-May', 'tickets')
    """
    first = split_patterns(records)[0]
    address = first.partition('?')[0] if is_database(first) else first
    name = address.rstrip('/').split('/')[-1].split('.')[0]
    return re.sub(r'[^A-Za-z0-9_-]+', '-', name).strip('-_') or 'corpus'
