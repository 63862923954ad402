"""The start of a run is found by the report or the card beside or above it, and goes on with its list."""

import json
import math
import os
import pathlib
import shutil

import pytest

from models.privacy.report import words
from pipeline.ledger.ledger import Ledger
from pipeline.methods import earlier
from tests.launched import report_of
from tests.models.privacy.report.samples import released_report
from tests.oracles import normal_pair
from tests.pipeline.refine_run_test import charged, filled, refine
from transforms import run_files


@pytest.fixture(scope='module')
def chain(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A reads the records and is charged to nothing; B refines A on the ledger; C refines B on the ledger."""
    folder = filled(tmp_path_factory.mktemp('chain'))
    given = charged(folder) | {'epsilon': '10'}
    refine(folder, folder / 'texts.jsonl', output=str(folder / 'A'), keep='12')
    refine(folder, folder / 'A', output=str(folder / 'B'), **(given | {'keep': '9'}))
    refine(folder, folder / 'B', output=str(folder / 'C'), **(given | {'keep': '6'}))
    return folder


@pytest.mark.run
def test_the_last_report_of_a_chain_has_all_costs_and_says_which_ledger_has_them(chain: pathlib.Path) -> None:
    first, second, third = (report_of(chain / name) for name in 'ABC')
    assert [(of.run_id, of.dataset, of.through) for of in third.releases] == [
        ('B', 'mail', None), ('A', None, 'B'),
    ]  # fmt: skip
    assert len({first.commitment, second.commitment, third.commitment, None}) == 4
    rho = sum(found.rho_total or 0.0 for found in (first, second, third))
    # Three tables of votes are one Gaussian mechanism, with hardly less noise than theirs.
    exact = normal_pair.epsilon_of_gaussian(math.sqrt(0.5 / rho), 1e-2)
    assert exact <= third.epsilon < exact * (1 + 5e-3)
    assert third.ledger is not None and third.ledger.epsilon_after < third.epsilon
    said = words.sections(third)['went_in'][0]
    assert "The sum of the ledger lacks 'A': all 2 runs on dataset 'mail'" in said
    enforced = ' '.join(third.assumptions_enforced)
    assert "The run 'B' went in. The ledger charged it before this run, as run 1" in enforced
    assert any("counts the run 'A' too" in row for row in third.assumptions_of_curator)
    assert 'A' in (chain / 'C' / 'README.md').read_text().partition('Releases that went in')[2]
    # The twin that is open: one hop counts B and this run alone.
    one_hop = sum(found.rho_total or 0.0 for found in (second, third))
    assert third.epsilon > normal_pair.epsilon_of_gaussian(math.sqrt(0.5 / one_hop), 1e-2) * (1 + 2e-2)


@pytest.mark.run
@pytest.mark.parametrize('with_ledger', [True, False])
def test_listed_files_of_a_release_are_that_release(chain: pathlib.Path, with_ledger: bool) -> None:
    """By the report above them. The twin, files alone, is the curator's word: see below."""
    output = chain / f'listed-{with_ledger}'
    ledger = shutil.copy(chain / 'ledger.db', f'{output}.db')
    given = {'dataset': 'mail', 'ledger': str(ledger)} if with_ledger else {}
    refine(chain, f'{chain}/B/data/*.parquet', output=str(output), keep='4', epsilon='10', **given)
    found = report_of(output)
    assert [of.run_id for of in found.releases] == ['B', 'A']
    assert not any('saw none of these records' in row for row in found.assumptions_of_curator)
    assert with_ledger == any(
        "'B' went in. The ledger charged it" in row for row in found.assumptions_enforced
    )


@pytest.mark.run
def test_data_files_alone_are_the_curators_word_and_the_report_says_so(chain: pathlib.Path) -> None:
    shutil.copytree(chain / 'B' / 'data', chain / 'bare')
    refine(chain, f'{chain}/bare/*.parquet', output=str(chain / 'of-bare'), keep='4', epsilon='10')
    found = report_of(chain / 'of-bare')
    assert found.releases == () and found.epsilon == found.epsilon_of_run
    (said,) = [row for row in found.assumptions_of_curator if 'saw none of these records' in row]
    assert "That is the curator's word: no report and no card of a run lies beside these files" in said


@pytest.mark.run
def test_a_claimed_charge_that_the_ledger_lacks_is_refused_for_files_and_further_up(
    chain: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    Ledger.create(str(tmp_path / 'new.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=60.0)
    given = {'dataset': 'mail', 'ledger': str(tmp_path / 'new.db'), 'output': str(tmp_path / 'out')}
    for place in (f'{chain}/B/data/*.parquet', str(chain / 'C'), str(chain / 'B')):
        done = refine(chain, place, 2, keep='4', **given)
        assert 'Expected a corpus whose charge the ledger holds' in done.stdout + done.stderr


def release(folder: pathlib.Path, run_id: str) -> pathlib.Path:
    """A folder with a report, and files below it."""
    (folder / 'data' / 'deep').mkdir(parents=True)
    (folder / run_files.REPORT).write_text(released_report(run_id))
    for name in ('a.jsonl', 'deep/b.jsonl'):
        (folder / 'data' / name).write_text(json.dumps({'text': 'a'}) + '\n')
    return folder


def test_the_nearest_report_above_counts_through_links_and_lists(tmp_path: pathlib.Path) -> None:
    first, second = release(tmp_path / 'first', 'first'), release(tmp_path / 'first' / 'second', 'second')
    (tmp_path / 'away').mkdir()
    (tmp_path / 'away' / 'link.jsonl').symlink_to(first / 'data' / 'a.jsonl')
    (tmp_path / 'away' / 'public.jsonl').write_text(json.dumps({'text': 'a'}) + '\n')

    def found(*places: pathlib.Path) -> tuple[list[str], bool]:
        origin = earlier.origin_of_texts(','.join(map(str, places)), 'corpus')
        return [of.run_id for of in origin.given.sources], origin.vouched

    assert found(first / 'data' / 'a.jsonl') == (['first'], False)
    assert found(first / 'data' / 'deep' / 'b.jsonl') == (['first'], False)
    assert found(second / 'data' / '*.jsonl') == (['second'], False)
    assert found(tmp_path / 'away' / 'link.jsonl') == (['first'], False)
    assert found(first / 'data' / 'a.jsonl', second / 'data' / 'a.jsonl') == (['first', 'second'], False)
    assert found(tmp_path / 'away' / '*.jsonl') == (['first'], True)
    assert found(tmp_path / 'away' / 'public.jsonl') == ([], True)
    # As a path from here, too.
    before = pathlib.Path.cwd()
    os.chdir(first / 'data')
    try:
        assert found(pathlib.Path('a.jsonl')) == (['first'], False)
    finally:
        os.chdir(before)


def test_a_report_above_files_that_states_no_epsilon_or_is_damaged_is_refused(tmp_path: pathlib.Path) -> None:
    place = release(tmp_path / 'first', 'first')
    for text, said in (
        (released_report(statement='ex-post'), "statement='ex-post'"),
        ('{', 'statement=None'),
        (released_report(stages=3), 'stages with: value should be .*Restore the release as its run wrote it'),
        (released_report(epsilon=0.01), 'Expected epsilon to follow from the mechanism'),
    ):
        (place / run_files.REPORT).write_text(text)
        with pytest.raises(ValueError, match=said):
            earlier.origin_of_texts(str(place / 'data' / 'a.jsonl'), 'corpus')
