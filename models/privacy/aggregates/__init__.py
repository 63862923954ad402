"""Ways to combine the votes of a batch, each a file with its votes and its price; `AGGREGATES` is the table.

A new one is a final subclass of `Aggregate` in a file of its own, a slow twin in
`tests/oracles/aggregates.py`, and one call of `register`. What has a name here is a value of the
`aggregate` setting everywhere else.
"""

from models.privacy.aggregates.aggregate import Aggregate
from models.privacy.aggregates.difference import Difference
from models.privacy.aggregates.individual import IndividualDifference
from models.privacy.aggregates.mean import Mean
from models.privacy.aggregates.median import Median

AGGREGATES: dict[str, Aggregate] = {}
# What `accounting='individual'` makes of the difference; not a name of the `aggregate` setting.
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
