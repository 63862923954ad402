"""JSON texts of records in the compact form, as they stand in prompts."""

from collections.abc import Mapping
from typing import Any

from models.grammars.json_schema import json_text
from models.grammars.json_schema.references import References


def compact(root: Any, text: str) -> str | None:
    """A JSON text in the compact form: declared keys in their order, numbers at their shortest.

    It need not be valid. A total function.

    Returns:
        None where it is not JSON, has a key twice, half of a surrogate pair or a number that is not written
        out.
    """
    try:
        return json_text.spelled(_ordered(root, json_text.read(text), References(root)), '#')
    except (ValueError, ArithmeticError, RecursionError):
        # The text may be private, so nothing is said about it.
        return None


def _ordered(schema: Any, value: Any, references: References) -> Any:
    """A value with the keys of its objects in declared order, undeclared ones behind them."""
    schema = references.resolved(schema, '#')
    if not isinstance(schema, Mapping):
        return value
    for name in ('anyOf', 'oneOf', 'allOf'):
        for branch in schema.get(name, ()):
            value = _ordered(branch, value, references) if _may_be(branch, value, references) else value
    if isinstance(value, Mapping):
        declared = schema.get('properties', {})
        keys = [
            *(key for key in declared if key in value),
            *(key for key in value if key not in declared),
        ]
        return {key: _ordered(declared.get(key), value[key], references) for key in keys}
    if isinstance(value, list):
        return [_ordered(schema.get('items'), item, references) for item in value]
    return value


def _may_be(schema: Any, value: Any, references: References) -> bool:
    """True if a value may be of a branch, by its type and its keys."""
    schema = references.resolved(schema, '#')
    if not isinstance(schema, Mapping) or not isinstance(value, Mapping) or 'properties' not in schema:
        return True
    return value.keys() <= schema['properties'].keys() and value.keys() >= set(schema.get('required', []))
