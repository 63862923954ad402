"""The aggregates: ways to combine the votes of a batch. `AGGREGATES` is the table.

A new aggregate is a final subclass of `Aggregate` in a file of its own, one call of `register`, and a
slow twin in `tests/oracles/aggregates.py` (`tests/dummies/halved.py` shows one). Every name in the table
is a value of the `aggregate` setting.
"""

from models.privacy.aggregates.aggregate import Aggregate
from models.privacy.aggregates.difference import Difference
from models.privacy.aggregates.individual import IndividualDifference
from models.privacy.aggregates.mean import Mean
from models.privacy.aggregates.median import Median

AGGREGATES: dict[str, Aggregate] = {}
# The difference with `accounting='individual'`. It is not a value of the `aggregate` setting.
INDIVIDUAL_DIFFERENCE = IndividualDifference()


def register(aggregate: Aggregate) -> None:
    """Adds an aggregate to the table.

    Raises:
        ValueError: Its name is taken.
    """
    if aggregate.name in AGGREGATES:
        raise ValueError(
            f'Expected a name of its own, got name={aggregate.name!r}. Taken: {", ".join(AGGREGATES)}.'
        )
    AGGREGATES[aggregate.name] = aggregate


for _aggregate in (Mean(), Median(), Difference()):
    register(_aggregate)
