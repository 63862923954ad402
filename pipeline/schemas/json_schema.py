"""The JSON Schema of a Python type: pydantic's, closed to other keys, with the words of the docstrings."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import pydantic


def with_keys(root: Any, before: Mapping[str, Any]) -> Any:
    """A TypedDict of the fields of a class, with some keys before them.

    Args:
        root: A dataclass or a TypedDict.
        before: Name to type. A field of the class with such a name has the class's type.
    """
    hints = typing.get_type_hints(root)
    if dataclasses.is_dataclass(root):
        # In the order of the JSON: hints have those of a base class first.
        hints = {field.name: hints[field.name] for field in dataclasses.fields(root)}
    # Named in a variable: type checkers take no computed TypedDict.
    make: Any = typing.TypedDict
    return make(root.__name__, {**before, **hints})


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type, as an object. It allows no other keys and describes each key by its docstring."""
    found = pydantic.TypeAdapter(kind).json_schema(mode='serialization')
    classes = {cls.__name__: cls for cls in _classes(kind)}
    for name, definition in found.get('$defs', {}).items():
        if name not in classes:  # an alias
            continue
        words = described(classes[name])
        definition['description'] = words['description']
        for key, value in definition['properties'].items():
            if key in words['properties']:
                value['description'] = words['properties'][key]
    return _closed(found)


def _closed(node: Any) -> Any:
    """Without the titles that repeat the keys, and with objects of known keys closed to others."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key != 'title' or not isinstance(value, str)}
    for group in ('properties', '$defs'):
        if group in plain:
            plain[group] = {key: _closed(value) for key, value in plain[group].items()}
    found = {key: value if key in ('properties', '$defs') else _closed(value) for key, value in plain.items()}
    if 'properties' not in found:
        return found
    for value in found['properties'].values():
        value.pop('default', None)
    # A key is written whether or not a constructor has a default for it.
    return found | {'required': list(found['properties']), 'additionalProperties': False}


def _classes(kind: Any, seen: frozenset[Any] = frozenset()) -> set[Any]:
    """All dataclasses and TypedDicts that a type mentions, at any depth."""
    if kind in seen:
        return set()
    seen |= {kind}
    if isinstance(kind, typing.TypeAliasType):
        return _classes(kind.__value__, seen)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind).values()
        return {kind}.union(*(_classes(hint, seen) for hint in hints))
    # A literal's arguments are values.
    arguments = () if typing.get_origin(kind) is Literal else typing.get_args(kind)
    return set().union(*(_classes(argument, seen) for argument in arguments))


def described(cls: Any) -> dict[str, Any]:
    """What a docstring says of a class and of its attributes."""
    text = re.sub(r'\n {4}', '\n', cls.__doc__ or '')
    about, _, rest = text.partition('\n\nAttributes:\n')
    # What follows the attributes, a sample, is not indented.
    attributes = re.split(r'\n(?=\S)', rest)[0]
    found = re.findall(r'^ {4}(\w+): (.*(?:\n {8}.*|\n(?= {8}))*)', attributes, re.MULTILINE)
    about = about.split('\n\nSample')[0]
    inherited: dict[str, str] = {}
    for base in types.get_original_bases(cls):
        if typing.is_typeddict(base):
            inherited |= described(base)['properties']
    return {
        'description': ' '.join(about.split()),
        'properties': inherited | {name: ' '.join(words.split()) for name, words in found},
    }
