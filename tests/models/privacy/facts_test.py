"""Facts that a part may tell a report: a weaker statement has words, a price can be worked out again."""

import re

import pytest

from models.privacy.facts import Facts, Reproduction, RhoStage, StatementWords

WORDS = StatementWords(guarantee='None for {one}.', accounting='Nothing adds up.', limits=())


def stage(rho: float | None) -> RhoStage:
    return RhoStage(name='A stage', rho=rho, explanation='Something.', formula='x', numbers='')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'statement': 'ex-post'}, "statement='ex-post'"),
        ({'statement_words': WORDS}, "statement='differential privacy'"),
        ({'stages': (stage(0.5),)}, 'stages=1, reproduction=False'),
        ({'reproduction': Reproduction(cost='x')}, 'stages=0, reproduction=True'),
        ({'stages': (stage(None),), 'reproduction': Reproduction(cost='x')}, 'stages=1, reproduction=True'),
    ],
)
def test_facts_that_leave_something_out_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Facts(**arguments)


def test_what_has_a_price_brings_its_arithmetic() -> None:
    priced = Facts(stages=(stage(0.5),), reproduction=Reproduction(steps=('x = 0.5',), cost='x'))
    assert priced.reproduction is not None
