"""A new measure takes one file and one registration: the command, the document and the page follow."""

import json
import pathlib

import pytest

from pipeline import main
from pipeline.evaluation import measures
from tests.documents import check_document
from tests.pipeline.evaluation.made_up import Shouting


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, 'MEASURES', dict(measures.MEASURES))
    measures.register(Shouting())


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    """Two corpora, one of them without an exclamation mark, and records, as arguments."""
    places = []
    for name, texts in {
        'loud': ['Stop!', 'Go on.', 'Now!', 'Well.'],
        'quiet': ['So it is.', 'It was.'],
        'records': ['No!', 'Yes.', 'Perhaps.', 'Later.'],
    }.items():
        path = tmp_path / f'{name}.jsonl'
        path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
        places.append(str(path))
    loud, quiet, records = places
    return [loud, '--name', 'loud', '--also', f'quiet={quiet}', '--records', records]


def test_it_goes_through_the_command_the_document_and_the_page(
    tmp_path: pathlib.Path, files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ['evaluate', *files, '--only', 'shouting', '--output', str(tmp_path / 'out')]
    assert not main.app(arguments, standalone_mode=False)
    terminal = capfd.readouterr().out
    assert 'Shouting' in terminal and 'Loud texts ↓' in terminal and 'quiet: Nobody shouts.' in terminal

    found = check_document('evaluation', (tmp_path / 'out' / 'evaluation.json').read_text())
    loud, quiet = (each['measures'] for each in found['corpora'])
    assert [result['measure'] for result in loud] == ['shouting']
    assert [figure['value'] for figure in loud[0]['findings']['figures']] == [0.5, 0.25]
    assert loud[0]['findings']['settings'] == {'mark': '!'}
    assert quiet[0]['findings'] is None and quiet[0]['reason'] == 'Nobody shouts.'
    assert found['audience'].startswith('Restricted')

    page = (tmp_path / 'out' / 'evaluation.html').read_text()
    for words in (
        '<h2>Shouting</h2>', 'Does the corpus shout more than the records do?', 'Made up, section 1',
        'Loud texts ↓', 'loud: Who shouts', 'The first loud text', 'Stop!',
        'quiet: Not defined. Nobody shouts.',
    ):  # fmt: skip
        assert words in page, words
    assert page.count('<svg') == 1


def test_it_is_among_all_measures_and_says_what_it_needs(
    files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    main.app(['evaluate', files[0], '--only', 'shouting', '--json'], standalone_mode=False)
    [result] = json.loads(capfd.readouterr().out)['corpora'][0]['measures']
    assert result['reason'] == 'It needs --records.'
    assert list(measures.MEASURES)[-1] == 'shouting'
    with pytest.raises(ValueError, match="name='shouting'"):
        measures.register(Shouting())
