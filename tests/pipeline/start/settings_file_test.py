"""The file of settings holds what it was given, whatever texts say."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.methods.follows import Follows
from pipeline.start.settings_file import commented

NAMES = st.from_regex(r'[a-z_]{1,12}', fullmatch=True)
# A file is UTF-8, which has no lone surrogates.
TEXTS = st.text(st.characters(exclude_categories=['Cs']))
VALUES = st.one_of(
    TEXTS, st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
    st.lists(TEXTS, max_size=3).map(tuple),
)  # fmt: skip
FOLLOWED = st.builds(lambda value, because: Follows(value=value, because=because), VALUES, TEXTS)


@given(said=st.dictionaries(NAMES, VALUES, max_size=4), followed=st.dictionaries(NAMES, FOLLOWED, max_size=4),
       head=st.lists(TEXTS, max_size=3))  # fmt: skip
def test_a_file_is_read_back_to_what_was_given(
    said: dict[str, Any], followed: dict[str, Follows], head: list[str]
) -> None:
    said = {f's{name}': value for name, value in said.items()}
    followed = {f'f{name}': follows for name, follows in followed.items()}
    text = commented(head, said, followed, {'last': Follows(value='corpus', because='Why.')})
    expected = said | {name: follows.value for name, follows in followed.items()} | {'last': 'corpus'}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in expected.items()}
    assert tomllib.loads(text) == plain
    assert text.encode() and text.endswith('\n')


def test_every_setting_that_follows_has_its_reason_above_it() -> None:
    reason = 'A reason that is so long that it does not fit into one line of a file, ' * 3
    text = commented(('A file.',), {'a': 1}, {'b': Follows(value=2, because=reason.strip())}, {})
    lines = text.splitlines()
    place = lines.index('b = 2')
    above = lines[lines.index('# --- What follows from it') + 2 : place]
    assert ' '.join(line.removeprefix('# ') for line in above) == reason.strip()
    assert max(map(len, lines)) <= 102 and lines[0] == '# A file.'


def test_a_comment_cannot_become_a_setting() -> None:
    text = commented((), {}, {'a': Follows(value=1, because='Why.\nepsilon = 100\r\nb = 2')}, {})
    assert tomllib.loads(text) == {'a': 1}
