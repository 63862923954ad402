"""Templates are checked where they are made, and read from files as they stand."""

import dataclasses
import pathlib
import re

import pytest

from models import prompt_templates
from models.prompt_templates import PRESETS, PromptTemplate


@pytest.mark.parametrize('stop', ['', 'a\ud800b', '\ufffd', 'x' * 300])
def test_a_stop_text_that_no_table_finds_is_refused(stop: str) -> None:
    with pytest.raises(ValueError, match='Expected stop texts'):
        dataclasses.replace(PRESETS['pretrained'], stop=('fine', stop))


@pytest.mark.parametrize(
    ('form', 'text', 'surplus'),
    [
        ('public', 'Like {text}', 'text'),
        ('public', '{examples}', 'examples'),
        ('private', '{examples} {text}', 'text'),
        ('example', '{text} {examples}', 'examples'),
        ('separator', '{text}', 'text'),
    ],
)
def test_a_placeholder_out_of_place_is_refused(form: str, text: str, surplus: str) -> None:
    forms = {'private': '{examples}', 'public': 'Write.', 'example': '{text}'} | {form: text}
    with pytest.raises(ValueError, match=rf"the {form} form .* got placeholders=\['{surplus}'\]\. Texts go"):
        PromptTemplate(**forms)


@pytest.mark.parametrize(
    ('form', 'text', 'count'),
    [
        ('private', 'none', 0),
        ('private', '{examples}{examples}', 2),
        ('example', '', 0),
        ('example', '{text}{text}', 2),
    ],
)
def test_the_texts_stand_exactly_once(form: str, text: str, count: int) -> None:
    forms = {'private': '{examples}', 'public': 'Write.', 'example': '{text}'} | {form: text}
    with pytest.raises(ValueError, match=rf'once in the {form} form of a prompt, got count={count}\. Write'):
        PromptTemplate(**forms)


def _write(folder: pathlib.Path, text: str) -> str:
    path = folder / 'template.toml'
    path.write_text(text, encoding='utf-8')
    return str(path)


@pytest.mark.parametrize('preset', PRESETS)
def test_a_preset_written_to_a_file_is_the_preset(tmp_path: pathlib.Path, preset: str) -> None:
    fields = dataclasses.asdict(PRESETS[preset])
    # TOML's basic strings and JSON's agree on all that presets hold.
    lines = [f'{name} = {_toml(value)}' for name, value in fields.items()]
    assert prompt_templates.read_template(_write(tmp_path, '\n'.join(lines))) == PRESETS[preset]
    assert prompt_templates.read_template(preset) is PRESETS[preset]


def _toml(value: str | bool | tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return '[' + ', '.join(map(_toml, value)) + ']'
    return '"' + re.sub(r'["\\]', r'\\\g<0>', value).replace('\n', '\\n') + '"'


VALID = "private = '{examples}'\npublic = 'Write.'\nexample = '{text}'\n"


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (VALID + "seperator = ','", r"keys=\['seperator'\].*Correct or leave out"),
        ("private = '{examples}'\nexample = '{text}'", r"got no \['public'\].*Add these keys"),
        ('', r"got no \['example', 'private', 'public'\]"),
        (VALID.replace('Write.', 'Like {text}'), r"placeholders=\['text'\].*no field of a record"),
        (VALID + "stop = '```'", r"a list of texts as stop, .* got stop='```'.*Write stop = "),
        (VALID + "one_line = 'yes'", r"true or false as one_line, .* one_line='yes'"),
        (VALID + 'stop = [1]', r'got stop=\[1\]'),
        (VALID + 'separator = 1', r'Expected texts in a prompt template'),
    ],
)
def test_a_wrong_template_file_is_refused(tmp_path: pathlib.Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prompt_templates.read_template(_write(tmp_path, text))


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"got prompt='instrction'\. Presets: document, pretrained, .*TOML"):
        prompt_templates.read_template('instrction')
