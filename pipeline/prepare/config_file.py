"""A file of settings that is to name another input; every other line of it stays as it is."""

import pathlib
import re
import tomllib

import tomli_w

# Settings of how files are written, or which table is read: JSON lines need none.
_OF_FORMAT = ('delimiter', 'encoding', 'quoting', 'query', 'partition_column', 'sheet', 'split')


def of_part(path: str, records: str) -> str:
    """The text of a file of settings with another input, in JSON lines.

    Raises:
        ValueError: The file is written in a way in which a line cannot be told from its neighbours.
    """
    text = pathlib.Path(path).read_text(encoding='utf-8')
    line = tomli_w.dumps({'input': records}).rstrip('\n')
    changed = re.sub(r'(?m)^input\s*=.*$', lambda _: line, text)
    changed = re.sub(rf'(?m)^({"|".join(_OF_FORMAT)})\s*=.*\n', '', changed)
    wanted = {name: value for name, value in tomllib.loads(text).items() if name not in _OF_FORMAT}
    try:
        is_right = tomllib.loads(changed) == {**wanted, 'input': records}
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ValueError(
            f'Expected config={path!r} with each of input, {", ".join(_OF_FORMAT)} on a line of its own, as '
            '`dp-corpus start` writes it, got another form. Split without --config, and change the file.'
        )
    return changed
