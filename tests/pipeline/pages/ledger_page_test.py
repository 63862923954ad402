"""The page of a budget: complete, escaped, self-contained, the same each time."""

import dataclasses
import re
import typing

import pytest

from models.privacy import report
from models.privacy.accounting import RunCost
from pipeline.ledger.account import Account
from pipeline.ledger.budget import Charge, Dataset
from pipeline.ledger.event import Event, EventKind
from pipeline.pages import ledger_page
from tests.pipeline.pages.report_page_test import Page, plain

NASTY = '<script>alert("1")</script> & {{ 7*7 }} $\\frac$'
DATASET = Dataset(
    name='visits', unit='user', rho_budget=1.0523580045569878, delta=1e-6, epsilon_budget=8.0,
    created='2026-01-01T00:00:00.000+00:00',
)  # fmt: skip


def account(count: int, rho: float = 0.1) -> Account:
    held = Account(dataset=dataclasses.replace(DATASET, rho_budget=max(1.05, 2 * count * rho)), runs=())
    for index in range(count):
        charge = Charge(
            run_id=f'run-{index}',
            unit='user',
            cost=RunCost.of_rho({'generation': rho}),
            identity='i',
            key_commitment='k',
        )
        held = held.with_charge(charge, at=f'2026-01-02T00:00:{index % 60:02d}.000+00:00')
    return held


BUDGET = {'rho_budget': 1.05, 'epsilon_budget': 8.0, 'delta': 1e-6}


def event(number: int, kind: EventKind, run_id: str | None = None, **details: typing.Any) -> Event:
    at = f'2026-01-0{number}T00:00'
    return Event(number=number, dataset='visits', run_id=run_id, kind=kind, details=details, at=at)


EVENTS = [
    event(1, 'dataset added', unit='user', **BUDGET),
    event(2, 'reserved', 'run-0', rho=0.1),
    event(
        3,
        'budget changed',
        reason=NASTY,
        before=BUDGET,
        after={'rho_budget': 2.5, 'epsilon_budget': None, 'delta': 1e-6},
    ),
    event(4, 'refused', 'run-9', rho=9.0, reason='budget exceeded'),
]


@pytest.mark.parametrize('count', [0, 1, 3, 60])
def test_page_holds_every_run_and_event(count: int) -> None:
    held = account(count)
    page = ledger_page.render_html(held, EVENTS)
    text = plain(Page(page).text)
    for run in held.runs:
        entry = held.entry(run)
        row = f'{run.number} {run.run_id} 0.1 {report.format_up(entry.rho_after)} '
        assert row + f'{report.format_up(entry.epsilon_after)} 2026-01-02 ' in text
    assert f'Spent, ρ {report.format_up(held.rho_spent)} Left, ρ {report.format_down(held.rho_left)}' in text
    assert 'Budget, ε at δ = 10-6 8 ' in text.replace('−', '-')
    assert page.count('<svg') == (2 if count else 0)
    assert (f'The other {count - 40} runs' in text) == (count > 40)
    for words in ('Log of 4 events', 'ρ = 9; budget exceeded', 'now ρ = 2.5 at δ = 10-6; before ρ = 1.05'):
        assert words in text, words


def test_page_loads_nothing_and_takes_no_markup_from_names() -> None:
    held = account(3)
    run = dataclasses.replace(held.runs[0], run_id=NASTY)
    nasty = dataclasses.replace(
        held, runs=(run, *held.runs[1:]), dataset=dataclasses.replace(held.dataset, name=NASTY)
    )
    page = ledger_page.render_html(nasty, EVENTS)
    parsed = Page(page)
    assert not {tag for tag, _ in parsed.elements} & {'script', 'link', 'img', 'iframe', 'object', 'form'}
    assert len(parsed.ids) == len(set(parsed.ids)) > 0
    assert NASTY in parsed.text and '49' not in parsed.text
    assert set(re.findall(r'https?://[^"\'\s<>]*', page)) <= {
        'http://www.w3.org/2000/svg',
        'http://www.w3.org/1999/xlink',
    }


def test_a_changed_budget_is_drawn_as_it_stood() -> None:
    held = account(3)
    raised = dataclasses.replace(held, dataset=dataclasses.replace(held.dataset, rho_budget=3.0))
    assert ledger_page.rho_plot(raised).svg != ledger_page.rho_plot(held).svg
    ticks = [float(value) for value in re.findall(r'>([\d.]+)<', ledger_page.rho_plot(raised).svg)]
    assert max(ticks) >= 3
