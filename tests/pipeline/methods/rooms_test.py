"""A method's code stands in its folder: nothing else in pipeline names a method or a setting of one."""

import pathlib
import re

import pipeline

ROOT = pathlib.Path(pipeline.__file__).parent
# The names of methods, and words of which each is of one method's settings or mechanism.
OF_A_METHOD = re.compile(r"""\bvotes\b|\.adapter\b|label_mix|'predict'|'fine-tune'|"predict"|"fine-tune\"""")
# Lines that may hold one, each with why.
ALLOWED = {
    "METHOD, DEFAULT_METHOD = 'method', 'predict'": 'the method of a run that names none',
    "('fine-tune', 'predict')": 'an example in a docstring',
    "f'{100 * deciles[5]:.0f} % or less. Who has spent it all votes no more.'": 'words on a page',
    "caption = 'Each batch votes on one stream of tokens. Every planned batch is released.'": (
        'words on a page'
    ),
    **dict.fromkeys(
        (
            f'rounds/{" " * 34}of votes on whole texts: every list, and the noisy votes',
            '"""epsilon against the number of rounds of votes, with the run\'s marked."""',
            "x_name='Rounds of votes, T',",
        ),
        'words on a page',
    ),
}  # fmt: skip
# The commands of one method each, and the panel that two methods share.
OF_ITS_OWN = {
    pathlib.Path(name) for name in ('commands/generate.py', 'asked/narrowed.py', 'settings/text_votes.py')
}


def found() -> dict[str, str]:
    """Lines outside the folders of methods that hold one of these words, each with its place."""
    lines = {}
    for path in sorted(ROOT.rglob('*.py')):
        place = path.relative_to(ROOT)
        if place.parts[0] == 'methods' or place in OF_ITS_OWN:
            continue
        for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
            if OF_A_METHOD.search(line):
                lines[line.strip()] = f'{place}:{number}'
    return lines


def test_nothing_outside_its_folder_knows_a_method() -> None:
    assert {place: line for line, place in found().items() if line not in ALLOWED} == {}


def test_every_line_that_is_allowed_is_there() -> None:
    assert ALLOWED.keys() <= found().keys()
