"""`oneOf`: which of its schemas can have values in common, and the texts of exactly one of them."""

from collections.abc import Sequence
from typing import Any

from models.grammars import automaton, expressions
from models.grammars.expressions import Expression
from models.grammars.json_schema.keywords import UnsupportedKeywordError, types_of
from models.grammars.json_schema.references import References
from models.grammars.json_schema.scalars import scalars_of


def exclusive(
    schemas: Sequence[Any], parts: Sequence[Expression], place: str, references: References
) -> Expression:
    """The texts of `oneOf`: any schema's where none share a value; among scalars, without shared values.

    Args:
        schemas: The schemas.
        parts: The texts of each.
        place: JSON pointer of the schema that holds `oneOf`.
        references: Of the whole schema.

    Raises:
        UnsupportedKeywordError: Two schemas may have values in common that cannot be left out.
    """
    overlapping = [
        (index, other)
        for index in range(len(schemas))
        for other in range(index)
        if not _are_disjoint(schemas[index], schemas[other], place, references)
    ]
    if not overlapping:
        return expressions.union(*parts)
    scalars = [scalars_of(schema, place, references) for schema in schemas]
    for pair in overlapping:
        if any(found is None or found.is_more for found in (scalars[index] for index in pair)):
            raise UnsupportedKeywordError(
                'oneOf', place, f'schemas {pair[1]} and {pair[0]} may have values in common. Use anyOf, '
                'or a required property whose values differ'
            )  # fmt: skip
    kept = []
    for index, part in enumerate(parts):
        others = [scalars[sum(pair) - index] for pair in overlapping if index in pair]
        alone = automaton.build(part)
        for other in others:
            assert other is not None
            alone = automaton.difference(alone, other.valid)
        kept.append(automaton.embedded(alone) if others else part)
    return expressions.union(*kept)


def _are_disjoint(
    schema: Any, other: Any, place: str, references: References, inside: tuple[int, ...] = ()
) -> bool:
    """Whether two schemas certainly have no value in common.

    `inside` holds the identities of the schemas that are being compared around these.
    """
    first, second = references.resolved(schema, place), references.resolved(other, place)
    if first is False or second is False:
        return True
    if id(first) in inside and id(second) in inside:
        return False
    if not types_of(first) & types_of(second):
        return True
    if types_of(first) == types_of(second) == {'object'}:
        shared = set(first.get('required', [])) & set(second.get('required', []))
        return any(
            _are_disjoint(
                first.get('properties', {}).get(name, True),
                second.get('properties', {}).get(name, True),
                place,
                references,
                (*inside, id(first), id(second)),
            )
            for name in sorted(shared)
        )
    scalars = (scalars_of(first, place, references), scalars_of(second, place, references))
    if scalars[0] is None or scalars[1] is None:
        return False
    return automaton.intersection(scalars[0].valid, scalars[1].valid).is_empty
