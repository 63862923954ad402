"""A new aggregate is in the report with its own facts once it is registered: nothing there knows its name."""

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any, ClassVar, final

import pytest

from models.privacy import aggregates, events
from models.privacy.aggregates.aggregate import Aggregate
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity, StatementWords
from models.privacy.params import MechanismParams
from models.privacy.report import PrivacyReport
from pipeline.pages import report_page
from tests.documents import check_document
from tests.models.privacy.report.samples import build, clustered

RHO = 0.0125


class _Votes(Aggregate):
    """Its votes play no part here."""

    summary: ClassVar[str] = 'for tests'
    default_clip_bound: ClassVar[float] = 1.0
    default_temperature: ClassVar[float] = 2.0
    default_public_top_k: ClassVar[int | None] = None
    reads_public_logits: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    largest_clip_over_temperature: ClassVar[float] = 15.0

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: MechanismParams) -> Any:
        raise NotImplementedError

    def combine(self, tallied: Any, candidates: Any, params: MechanismParams) -> Any:
        raise NotImplementedError

    def allowed(self, mask: Any, public_logits: Any, params: MechanismParams) -> Any:
        raise NotImplementedError

    def token_losses(self, tallied: Any, allowed: Any, index: Any, params: MechanismParams) -> Any:
        raise NotImplementedError


@final
class Priced(_Votes):
    """Costs the same whatever the settings."""

    name: ClassVar[str] = 'priced-dummy'
    has_price_in_advance: ClassVar[bool] = True

    def sensitivity(self, params: MechanismParams) -> float:
        return 0.25

    def event(self, params: MechanismParams) -> events.ZCDpEvent:
        return events.ZCDpEvent(rho=RHO)

    def facts(self, params: MechanismParams) -> Facts:
        r = params.max_private_tokens
        return Facts(
            stages=(
                RhoStage(
                    name='Dummy tokens', rho=r * RHO, explanation='Sampling from dummies.', formula='r · d',
                    numbers=f'{r} · {RHO}',
                ),
            ),
            sensitivities=(Sensitivity(quantity='Any dummy', value=0.25, formula='1/4'),),
            assumptions_enforced=('Dummies are counted.',),
            assumptions_of_curator=('Dummies are public.',),
            limits=('It says nothing of dummies.',),
            symbols=('d the price of a dummy',),
            sources=('Nobody 2031, On dummies.',),
            reproduction=Reproduction(settings=(f'd = {RHO}  # price of a dummy',), cost='d'),
        )  # fmt: skip


@final
class Late(_Votes):
    """Tells its loss to the curator alone."""

    name: ClassVar[str] = 'late-dummy'
    has_price_in_advance: ClassVar[bool] = False

    def sensitivity(self, params: MechanismParams) -> float:
        raise ValueError

    def event(self, params: MechanismParams) -> None:
        return None

    def facts(self, params: MechanismParams) -> Facts:
        return Facts(
            statement='ex-post',
            statement_words=StatementWords(
                guarantee='Dummies tell of one {one} what they tell.', accounting='Dummies add up.',
                limits=('Of two {one}s it says nothing.',),
            ),
            stages=(
                RhoStage(name='Dummy tokens', rho=None, explanation='Late.', formula='late', numbers=''),
            ),
            why_no_sensitivity='Dummies move as they please.',
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    added = [Priced(), Late()]
    for each in added:
        aggregates.register(each)
    yield
    for each in added:
        del aggregates.AGGREGATES[each.name]


def params(name: str, **changes: Any) -> MechanismParams:
    return MechanismParams(
        batch_size=255, clip_bound=1.0, temperature=2.0, max_private_tokens=300, max_batch_tokens=4000,
        aggregate=name, **changes,
    )  # fmt: skip


def test_its_facts_are_in_the_report() -> None:
    made = build(params('priced-dummy'))
    assert [stage.name for stage in made.stages] == ['Dummy tokens']
    assert made.rho_total == pytest.approx(300 * RHO)
    assert made.rho_per_private_token == pytest.approx(RHO)
    assert [row.quantity for row in made.sensitivities] == ['Any dummy']
    assert 'Dummies are counted.' in made.assumptions_enforced
    assert 'Dummies are public.' in made.assumptions_of_curator
    assert 'It says nothing of dummies.' in made.limits
    assert not any('logits are clipped' in row for row in made.assumptions_enforced)


def test_with_other_parts_it_adds_up_and_readers_can_work_it_out_again() -> None:
    sparse = params('priced-dummy', threshold=0.5, threshold_noise_scale=0.2)
    made = clustered(sparse)
    assert [stage.name for stage in made.stages][-2:] == ['Dummy tokens', 'Sparse-vector test']
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(made.reproduction, {})
    assert printed.getvalue() == f'rho = {made.rho_total:.10g}, epsilon = {made.epsilon:.10g}\n'
    assert 'c = ' not in made.reproduction, 'a number that its price does not depend on'


def test_it_says_what_kind_of_statement_it_makes() -> None:
    made = build(params('late-dummy'))
    assert (made.statement, made.epsilon, made.rho_total) == ('ex-post', None, None)
    assert made.guarantee == 'Dummies tell of one record what they tell.'
    assert made.accounting == 'Dummies add up.' and 'Of two records it says nothing.' in made.limits
    assert made.reproduction == ''
    # Noisy counts are priced in advance all the same.
    assert 'noisy counts alone are' in clustered(params('late-dummy')).guarantee


@pytest.mark.parametrize('name', ['priced-dummy', 'late-dummy'])
def test_it_goes_round_and_onto_the_pages(name: str) -> None:
    made = build(params(name))
    check_document('privacy-report', made.to_json())
    assert PrivacyReport.from_json(made.to_json()) == made
    with pytest.raises(ValueError, match='to follow from the mechanism'):
        other = 'late-dummy' if name == 'priced-dummy' else 'priced-dummy'
        edited = json.loads(made.to_json())
        edited['method']['mechanism']['aggregate'] = other
        PrivacyReport.from_json(json.dumps(edited))
    page = report_page.render_html(made)
    assert made.stages[0].explanation in page
    assert ('d the price of a dummy' in page) == ('Nobody 2031' in page) == (name == 'priced-dummy')
    assert ('Dummies move as they please.' in page) == (name == 'late-dummy')
    assert 'log α' not in page and 'InvisibleInk' not in page
