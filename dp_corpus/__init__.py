"""dp-corpus from Python: what the command line does, with results as objects.

    import dp_corpus

    print(dp_corpus.plan(epsilon=1, records=10_000).guarantee())
    run = dp_corpus.generate(input='notes.csv', records=10_000, epsilon=1, output='corpus')
    run.report.epsilon, run.frame, run.page

Every flag of a command is a keyword argument of the function of its name, with the same default and the same
checks; docs/python.md is the guide. Heavy libraries are imported when a function needs them.
"""

import typing

from dp_corpus.calls import evaluate, fine_tune, generate, load, plan, refine
from dp_corpus.results import Evaluated, Page, Run
from models.extras import MissingExtraError
from pipeline.ledger.budget import BudgetExceeded
from pipeline.methods.method import RunPlan

if typing.TYPE_CHECKING:
    from pipeline.ledger.ledger import Ledger

__all__ = [
    'BudgetExceeded',
    'Evaluated',
    'Ledger',
    'MissingExtraError',
    'Page',
    'Run',
    'RunPlan',
    'evaluate',
    'fine_tune',
    'generate',
    'load',
    'plan',
    'refine',
]


def __getattr__(name: str) -> typing.Any:
    """`Ledger`, whose database library takes a second to import."""
    if name != 'Ledger':
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from pipeline.ledger.ledger import Ledger

    return Ledger


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
