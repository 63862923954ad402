"""Each panel of --help stands alone, with its own checks; `JobConfig` is all of them."""

import codecs
import dataclasses
import typing

import pytest

from pipeline.config import Encoding, JobConfig, panel
from pipeline.config.generation import Generation
from pipeline.config.input import Input
from pipeline.config.job_config import PANELS
from pipeline.config.model import Model
from pipeline.config.output import Output
from pipeline.config.privacy import Privacy
from pipeline.config.runner import Runner


def test_the_config_has_the_fields_of_its_panels_in_their_order() -> None:
    of_panels = [(field.name, part.__name__) for part in PANELS for field in dataclasses.fields(part)]
    of_config = [(field.name, field.metadata['panel']) for field in dataclasses.fields(JobConfig)]
    assert of_config == of_panels


@pytest.mark.parametrize(
    'part, settings, said',
    [
        (Input, {'records': 1}, 'records >= 2'),
        (Input, {'max_record_bytes': 0}, 'max_record_bytes >= 1'),
        (Input, {'delimiter': ';;'}, "one character .* got delimiter=';;'. Give --delimiter ';', or tab"),
        (Input, {'delimiter': '"'}, 'one character that is no quote'),
        (Input, {'encoding': 'rot13'}, "'utf-8' or 'utf-16' or .* got encoding='rot13'"),
        (Privacy, {}, 'either epsilon or context_budget'),
        (Privacy, {'aggregate': 'mean'}, 'either epsilon or max_private_tokens'),
        (Privacy, {'epsilon': 1.0, 'ledger': 'ledger.db'}, 'dataset and ledger together'),
        (Privacy, {'epsilon': 1.0, 'aggregate': 'mode'}, "'mean' or 'median' or 'difference' for aggregate"),
        (Generation, {'max_prompt_tokens': 0}, 'max_prompt_tokens >= 1'),
        (Model, {'model': 'gema3-1b'}, 'Expected a model among'),
        (Output, {'run_id': 'a b'}, 'letters, digits'),
        (Output, {'output': 'gs://bucket/runs[1]'}, r"without .* got output='gs://bucket/runs\[1\]'"),
        (Runner, {'accelerator': 'nvidia-l4'}, 'type:nvidia-l4;count:1'),
    ],
)
def test_a_panel_checks_itself(part: type[panel.Panel], settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        part(**settings)


@pytest.mark.parametrize('name', ['tab', '\\t', '\t'])
def test_a_command_line_can_spell_the_tabulator(name: str) -> None:
    assert Input(delimiter=name).resolved_delimiter == '\t'


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
