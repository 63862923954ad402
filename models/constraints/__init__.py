"""Constraints: which tokens may come next. `MASKS` is the table of those that settings can name.

A new constraint is one class in a file of its own: a frozen dataclass under
`jax.tree_util.register_dataclass`, whose arrays are data and whose other fields are static (`STATIC`), so
that other values of the same sizes do not compile another program. A case with a slow twin in
tests/contracts/constraint_test.py holds it to the contract. For settings to name it, the same file has a
`Mask` that builds it, and one call of `register` adds it to the table.
"""

from models.constraints.constraint import STATIC, Constraint
from models.constraints.grammar import Grammar
from models.constraints.long_enough import LongEnough
from models.constraints.mask import AnyText, Mask, Tokens
from models.constraints.tabulated import Tabulated
from models.constraints.vocabulary import Vocabulary

MASKS: dict[str, Mask] = {}


def register(mask: Mask) -> None:
    """Adds a mask to the table.

    Raises:
        ValueError: Its name is taken.
    """
    if mask.name in MASKS:
        raise ValueError(f'Expected a name of its own, got name={mask.name!r}. Taken: {", ".join(MASKS)}.')
    MASKS[mask.name] = mask


def mask_of(name: str) -> Mask:
    """The mask of a name.

    Raises:
        ValueError: There is none.
    """
    if name not in MASKS:
        raise ValueError(f'Expected the name of a mask, got mask={name!r}. Known: {", ".join(MASKS)}.')
    return MASKS[name]


register(AnyText())

__all__ = [
    'MASKS',
    'STATIC',
    'AnyText',
    'Constraint',
    'Grammar',
    'LongEnough',
    'Mask',
    'Tabulated',
    'Tokens',
    'Vocabulary',
    'mask_of',
    'register',
]
