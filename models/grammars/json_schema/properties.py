"""Properties of an object that are given a value in advance, and the values that a property can have."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from models.grammars import automaton
from models.grammars.expressions import Expression, concatenation, literal
from models.grammars.json_schema import json_text
from models.grammars.json_schema.keywords import APPLIED, keywords_of, listed_values
from models.grammars.json_schema.schema import MAX_RECURSION, Compiler, object_of, with_some_text


def expressions_given(
    schema: Any, choices: Sequence[Mapping[str, str]], *, max_recursion: int = MAX_RECURSION
) -> list[Expression]:
    """The texts of a schema's values with some properties given, an expression for each choice of values.

    Each is the expression of the schema with `const` for these properties, and with them required. The
    expressions share all other parts, so that one automaton of several of them shares their states.

    Raises:
        ValueError: See `schema.compiled`; or the schema is not of an object with declared properties.
    """
    members = _Root(schema, max_recursion).members()
    expressions = []
    for values in choices:
        chosen = [
            (
                concatenation(key, literal(values[name])) if name in values else whole,
                is_required or name in values,
            )
            for name, (key, whole, is_required) in members.items()
        ]
        expressions.append(with_some_text(object_of(chosen), max_recursion))
    return expressions


def value_text(schema: Any, name: str, written: str) -> str:
    """A value of a declared property in its shortest spelling.

    Args:
        schema: As of `expressions_given`.
        name: The property.
        written: The value as JSON; or, where the property does not take that value, the characters of a
            string.

    Raises:
        ValueError: The property is not declared, or takes neither.
    """
    root = _Root(schema)
    place = f'the value of {name}'
    allowed = automaton.build(root.texts_of(name))
    candidates = []
    with contextlib.suppress(ValueError, RecursionError, ArithmeticError):
        candidates.append(json_text.spelled(json_text.read(written), place))
    for text in (*candidates, json.dumps(written, ensure_ascii=False)):
        if allowed.accepts(text.encode(errors='surrogatepass')):
            return text
    raise ValueError(
        f'Expected a value that the JSON Schema allows for {name}, got {name}={written!r}. Give another one, '
        'or write it as JSON.'
    )


def categories(schema: Any, name: str) -> tuple[str, ...]:
    """The values of a declared property that is categorical, each in its shortest spelling.

    Raises:
        ValueError: The property is not declared, or is not an enum, a boolean or a const of scalars.
    """
    root = _Root(schema)
    allowed = automaton.build(root.texts_of(name))
    values = root.listed(name)
    if values is None or any(json_text.kind(value) in ('array', 'object') for value in values):
        raise ValueError(
            f'Expected condition_on to name properties that are an enum, a boolean or a const, got {name!r}, '
            'which is none. Its values are not declared one by one: leave it out.'
        )
    texts = dict.fromkeys(json_text.spelled(value, name) for value in values)
    return tuple(text for text in texts if allowed.accepts(text.encode()))


def property_texts(text: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The values of some properties of a record, each in its shortest spelling. A total function.

    Returns:
        None where the text is no JSON object, or has not all of them.
    """
    try:
        value = json_text.read(text)
        if not isinstance(value, Mapping) or any(name not in value for name in names):
            return None
        return tuple(json_text.spelled(value[name], '#') for name in names)
    except (ValueError, ArithmeticError, RecursionError):
        # The text may be private, so nothing is said about it.
        return None


class _Root:
    """A schema whose root has to be an object with declared properties."""

    def __init__(self, schema: Any, max_recursion: int = MAX_RECURSION) -> None:
        self.schema, self.compiler = schema, Compiler(schema, max_recursion)

    def members(self) -> dict[str, tuple[Expression, Expression, bool]]:
        """`Compiler.members` of the root."""
        keywords, place = self._root()
        return self.compiler.members(keywords, place, {})

    def texts_of(self, name: str) -> Expression:
        """The texts of a property's values.

        Raises:
            ValueError: It is not declared.
        """
        return self.compiler.value(self._declared(name), f'#/properties/{name}', {})

    def listed(self, name: str) -> list[Any] | None:
        """The values that a property's schema lists; None where it lists none."""
        schema = self.compiler.references.resolved(self._declared(name), '#')
        if not isinstance(schema, Mapping):
            return None
        values = listed_values(schema)
        is_boolean = values is None and schema.get('type') in ('boolean', ['boolean'])
        return [False, True] if is_boolean else values

    def _declared(self, name: str) -> Any:
        keywords, _ = self._root()
        declared = keywords.get('properties')
        if not isinstance(declared, Mapping) or name not in declared:
            known = ', '.join(declared) if isinstance(declared, Mapping) else 'none'
            raise ValueError(
                f'Expected properties that the JSON Schema declares at its root, got {name!r}. Declared: '
                f'{known}.'
            )
        return declared[name]

    def _root(self) -> tuple[Mapping[str, Any], str]:
        """The root's keywords and their place, references at it followed."""
        schema, place, seen = self.schema, '#', set[str]()
        while isinstance(schema, Mapping) and '$ref' in schema and schema['$ref'] not in seen:
            seen.add(place := schema['$ref'])
            schema = self.compiler.references.target(place, place)
        keywords = keywords_of(schema, place) if isinstance(schema, Mapping) else {}
        is_object = keywords.get('type') in ('object', ['object'])
        if not is_object or keywords.keys() & {'enum', 'const', *APPLIED}:
            raise ValueError(
                'Expected a JSON Schema of an object, whose type is object and whose properties are declared '
                f'beside it, got type={keywords.get("type")!r}. Values cannot be given to the properties of '
                'another one.'
            )
        return keywords, place
