"""The methods side by side."""

import functools
import pathlib
import re

import pytest

from models import cache, speed
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods import estimate
from pipeline.pages import comparison_terminal
from pipeline.plan import comparison
from pipeline.plan.comparison import compare
from tests.command_line import in_this_process
from tests.samples import on_terminal

pytestmark = pytest.mark.heavy

ROOT = pathlib.Path(__file__).parents[3]
WANTED = {'typical_words': 40, 'examples': 150, 'model': 'gemma3-270m'}


@pytest.fixture(autouse=True)
def no_run_was_made_here(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))


def recommended(**given: object) -> str | None:
    return compare({**WANTED, **given}).recommended


@pytest.mark.first
def test_each_method_has_the_plan_that_it_has_alone() -> None:
    found = compare({**WANTED, 'records': 5000, 'epsilon': 3.0})
    assert [each.method for each in found.methods] == ['predict', 'fine-tune', 'tune-refine', 'evolve']
    for each in found.methods:
        config = job_config(method=each.method, records=5000, epsilon=3.0, **WANTED)
        alone = methods.of(config).plan(methods.solve(config))
        assert (each.texts, each.delta, each.why_not) == (alone.written_texts(), alone.delta, None)
        assert each.epsilon == alone.epsilon <= 3
        assert each.hours is None


def test_the_table_of_the_readme_decides() -> None:
    assert recommended(records=380, epsilon=1.0, examples=20) == 'predict'
    assert recommended(records=384, epsilon=1.0) == 'tune-refine'
    assert recommended(records=20_000, epsilon=0.5) == 'evolve'
    many = {
        'labels': tuple(f'l{number}' for number in range(77)),
        'label_field': 'label',
        'typical_words': 12,
    }
    assert recommended(records=900, epsilon=1.0, **many) == 'tune-refine'
    assert recommended(records=10_003, epsilon=0.5, **many) == 'predict'


def test_a_method_that_does_not_pay_for_the_texts_says_why_and_another_is_taken() -> None:
    found = compare({**WANTED, 'records': 350, 'epsilon': 1.0, 'examples': 3000})
    first = found.methods[0]
    assert first.why_not is not None and first.why_not.startswith('Expected examples <=')
    assert (first.texts, first.hours, first.worth) == (None, None, None)
    assert found.recommended not in (None, 'predict')
    assert 'Before it comes predict, but: Expected examples <=' in found.because


def test_what_is_known_to_take_longer_than_a_night_comes_later() -> None:
    given = {**WANTED, 'records': 5452, 'epsilon': 3.0, 'candidates': 1_000_000}
    assert compare(given).recommended == 'tune-refine'
    speed.forget()
    for seconds in (1.0, 1e-3):
        speed.note('decoding', 1, seconds)
        speed.note('training', 1, seconds)
    for dtype in ('float32', 'bfloat16'):
        estimate.keep('gemma3-270m', dtype)
    slow = compare(given)
    hours = {each.method: each.hours for each in slow.methods if each.hours is not None}
    assert min(hours['tune-refine'], hours['evolve']) > comparison.A_NIGHT > hours['fine-tune']
    assert slow.recommended == 'fine-tune'
    assert 'Before it comes tune-refine, but: it would take' in slow.because


def test_every_score_is_a_row_of_the_measured_page() -> None:
    text = ' '.join((ROOT / 'docs/measured.md').read_text(encoding='utf-8').split())
    scores = [score for method in methods.METHODS.values() for score in method.scores]
    assert scores
    for score in scores:
        rows = re.findall(
            rf'\| {score.records:,}[^|]*\|[^|]*\| {score.epsilon:g} \|[^|]*\| {score.texts}', text
        )
        assert rows, score
        assert f'{score.worth:.2f} (' in text and f'{score.of_records:.2f}' in text


def test_all_scores_are_of_one_kind_of_records_and_none_of_the_bundled_model() -> None:
    found = compare({**WANTED, 'records': 5000, 'epsilon': 3.0})
    scores = {each.method: each.worth and (each.worth.what, each.worth.worth) for each in found.methods}
    assert scores == {
        'predict': None, 'fine-tune': ('news', 0.69), 'tune-refine': ('news', 0.86), 'evolve': ('news', 0.85),
    }  # fmt: skip
    assert '(news, 8,000 of 4 labels, ε = 1)' in found.worth
    bundled = compare({'records': 5000, 'epsilon': 3.0})
    assert {each.worth for each in bundled.methods} == {None} and bundled.worth == comparison.NO_WORTH


@pytest.mark.parametrize(
    ('records', 'labels', 'epsilon'),
    [
        (100, 6, 1.0),
        (600, 2, 1.0),
        (800, 20, 1.0),
        (5000, 6, 3.0),
        (10_000, 77, 1.0),
    ],
)
def test_the_star_follows_the_table(records: int, labels: int, epsilon: float) -> None:
    """No row that fits has a worth beyond that of the recommended one, but for the noise of a measurement."""
    declared = {'labels': tuple(f'l{number}' for number in range(labels)), 'label_field': 'label'}
    wanted = {**WANTED, 'examples': 20, **(declared if labels > 1 else {})}
    found = compare({**wanted, 'records': records, 'epsilon': epsilon})
    fitting = {each.method: each for each in found.methods if each.why_not is None and not each.warnings}
    worths = {name: each.worth.worth for name, each in fitting.items() if each.worth is not None}
    if found.recommended in worths:
        assert worths[found.recommended] >= max(worths.values()) - 0.02


def test_an_error_of_the_request_is_one_line() -> None:
    done = in_this_process('plan', '--compare', '--records', '5000', '--epsilon', '1', '--labels', 'a')
    assert done.returncode == 2 and 'Expected labels and label_field together' in done.stderr
    assert done.stdout == ''


def test_where_nothing_fits_the_command_ends_with_2() -> None:
    done = in_this_process('plan', '--compare', '--records', '50', '--epsilon', '0')
    assert done.returncode == 2 and 'No method fits' in done.stdout


def test_a_ledger_is_asked_of_one_method() -> None:
    done = in_this_process('plan', '--compare', '--records', '5000', '--epsilon', '1', '--dataset', 'd')
    assert done.returncode == 2 and 'Choose a method' in ' '.join(done.stderr.split())


@pytest.mark.parametrize(('columns', 'is_table'), [(120, True), (60, False)])
def test_methods_stand_side_by_side_where_there_is_room(columns: int, is_table: bool) -> None:
    found = compare({**WANTED, 'records': 5000, 'epsilon': 3.0})
    shown = on_terminal(functools.partial(comparison_terminal.print_comparison, found), columns)
    assert ('Why, or why not' in shown) == is_table and '…' not in shown
    assert max(map(len, shown.splitlines())) <= columns
    for method in ('predict', 'fine-tune', 'tune-refine *', 'evolve'):
        assert any(line.strip() == method for line in shown.splitlines()) != is_table
