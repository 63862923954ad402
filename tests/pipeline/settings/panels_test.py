"""Each panel of --help stands alone, with its own checks; a config has those of its method."""

import codecs
import dataclasses
import typing
from typing import Any

import pytest

from models import bundled, reference
from models.decoders import family
from pipeline.asked.config import METHOD_PANEL, job_config, settings_of
from pipeline.methods import METHODS
from pipeline.methods.predict.settings import Votes
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.output import Output
from pipeline.settings.prompt import DEFAULT_MIN_TOKENS, Prompt
from pipeline.settings.runner import Runner
from pipeline.settings.structure import Structured
from transforms.text_files import Encoding


@pytest.mark.parametrize('method', METHODS)
def test_the_config_has_the_fields_of_its_panels_in_their_order(method: str) -> None:
    own, known = METHODS[method].settings, settings_of(method)
    titles = ('Input', 'Privacy', METHOD_PANEL, *own.panels, 'Output', 'Runner')
    assert tuple(dict.fromkeys(setting.panel for setting in known.values())) == titles
    of_panels = [name for title in titles for name, setting in known.items() if setting.panel == title]
    corpus = {'corpus': 'texts.jsonl'} if method == 'refine' else {}
    of_config = job_config(method=method, epsilon=1.0, records=1000, **corpus).settings()
    assert list(of_config) == of_panels == list(known)
    for part in (Input, Budget, own, Output, Runner):
        assert {field.name for field in dataclasses.fields(part)} <= known.keys()


@pytest.mark.parametrize(
    'part, settings, said',
    [
        (Input, {'delimiter': ';;'}, "one character .* got delimiter=';;'. Give --delimiter ';', or tab"),
        (Input, {'delimiter': '"'}, 'one character that is no quote'),
        (Input, {'encoding': 'rot13'}, "'utf-8' or 'utf-16' or .* got encoding='rot13'"),
        (Votes, {'aggregate': 'mode'}, "'mean' or 'median' or 'difference' for aggregate"),
        (Prompt, {'max_example_tokens': 0}, 'max_example_tokens >= 1'),
        (Prompt, {'min_example_tokens': -1}, '0 <= min_example_tokens .* got min_example_tokens=-1'),
        (
            Prompt,
            {'min_example_tokens': 13, 'max_example_tokens': 12},
            'min_example_tokens <= max_example_tokens=12, got min_example_tokens=13. .* --max-example-tokens',
        ),
        (
            Structured,
            {'min_example_tokens': 4, 'regex': 'a'},
            "no min_example_tokens with a structure, got min_example_tokens=4, regex='a'",
        ),
        (Output, {'output': 'gs://bucket/runs[1]'}, r"without .* got output='gs://bucket/runs\[1\]'"),
        (Runner, {'runner': 'PrismRunner'}, 'a runner among FnApiRunner, .* got .*PrismRunner'),
    ],
)
def test_a_panel_checks_itself(part: type[panel.Panel], settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        part(**settings)


@pytest.mark.parametrize(
    'settings, tokens',
    [
        ({}, 8),
        ({'max_example_tokens': 31}, 7),
        ({'max_example_tokens': 3}, 0),
        ({'min_example_tokens': 0}, 0),
        ({'min_example_tokens': 96}, 96),
        ({'regex': 'a'}, 0),
        ({'min_example_tokens': 0, 'json_schema': 'a.json'}, 0),
    ],
)
def test_an_example_has_a_few_tokens_unless_a_structure_says_where_it_ends(
    settings: dict[str, Any], tokens: int
) -> None:
    assert Structured(**settings).least_tokens == tokens


def test_the_least_length_is_longer_than_a_salutation_and_enough_for_a_reference() -> None:
    """With a line break and the beginning of a stop text behind it, in pieces of the bundled vocabulary."""
    tokenizer = family.family_of(bundled.MODEL).load_tokenizer(bundled.MODEL, bundled.TOKENIZER)
    begun = tokenizer.encode_batch(['Dear customer,\n`', 'This is the\n`'])
    assert max(map(len, begun)) < DEFAULT_MIN_TOKENS
    assert DEFAULT_MIN_TOKENS + 1 > reference.LEAST_TOKENS, 'every example that ended by itself serves'


@pytest.mark.parametrize('name', ['tab', '\\t', '\t'])
def test_a_command_line_can_spell_the_tabulator(name: str) -> None:
    assert Input(delimiter=name).delimiter == '\t'


@pytest.mark.parametrize('encoding', typing.get_args(Encoding))
def test_every_encoding_is_one_that_files_are_read_in(encoding: Encoding) -> None:
    assert Input(encoding=encoding).encoding == encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    assert decoder.decode('text;1\n'.encode(encoding), final=True) == 'text;1\n'


def test_a_choice_that_a_table_gains_is_a_value() -> None:
    table = {'red': 1}

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Choosing(panel.Panel):
        colour: str = panel.setting('Runner', 'Of the bicycle shed.', 'red', choices=table)

        def check(self) -> None:
            pass

    with pytest.raises(ValueError, match="Expected 'red' for colour, got colour='green'"):
        Choosing(colour='green')
    table['green'] = 2
    assert Choosing(colour='green').colour == 'green'
