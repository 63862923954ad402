"""JSON objects among texts: which texts are such, the values of their fields, and what kind a field is of."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.evaluation import comparison
from pipeline.evaluation.sources import Texts

MAX_TEXTS = 10_000
# A field is looked at if so many of the objects have it: keys that are data themselves are left out.
MIN_FIELD_SHARE = 0.01
MAX_FIELDS = 30
# A field has categories if its values are this few, and each occurs this often in the mean.
MAX_CATEGORIES = 30
MIN_TEXTS_PER_CATEGORY = 3
# Of a field's values, those of one JSON type that make it a field of that type.
TYPE_SHARE = 0.9
SCALARS = ('string', 'number', 'boolean')

type Json = None | bool | int | float | str | list[Json] | dict[str, Json]
type FieldKind = typing.Literal['category', 'number', 'other']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objects:
    """The objects among a sample of one source's texts.

    Attributes:
        name: Of the source.
        texts: How many were parsed.
        objects: Those that are objects.
        fields: Present values of each field, null ones left out, by its path.
    """

    name: str
    texts: int
    objects: list[dict[str, Json]] = dataclasses.field(repr=False)
    fields: Mapping[str, list[Json]] = dataclasses.field(repr=False)

    @property
    def rate(self) -> float:
        """Share of the texts that are objects."""
        return len(self.objects) / self.texts

    def missing(self, field: str) -> float:
        """Share of the objects that lack a field, or have null there."""
        return 1 - len(self.fields.get(field, ())) / len(self.objects)


def parse_object(text: str) -> dict[str, Json] | None:
    """The JSON object (RFC 8259) that a text is, spaces around it aside; else None."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    # A number of thousands of digits, or lists thousands deep.
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> typing.NoReturn:
    """NaN and Infinity, which Python reads, are no JSON."""
    raise ValueError(f'Expected JSON, got {constant}. Leave it out.')


def json_type(value: Json) -> str:
    """'null', 'boolean', 'number', 'string', 'array' or 'object'."""
    match value:
        case None:
            return 'null'
        case bool():
            return 'boolean'
        case int() | float():
            return 'number'
        case str():
            return 'string'
        case list():
            return 'array'
        case _:
            return 'object'


def objects_of(texts: Texts, generator: np.random.Generator) -> Objects:
    """Parses the texts of a source, or a sample of `MAX_TEXTS` of them."""
    rows = comparison.drawn(generator, len(texts), min(len(texts), MAX_TEXTS))
    objects = [found for row in rows if (found := parse_object(texts.texts[row])) is not None]
    fields: dict[str, list[Json]] = collections.defaultdict(list)
    for each in objects:
        for path, value in leaves_of(each).items():
            fields[path].append(value)
    return Objects(name=texts.name, texts=len(rows), objects=objects, fields=dict(fields))


def leaves_of(of: dict[str, Json]) -> dict[str, Json]:
    """Values that are neither objects nor null, by their path; of two with one path, the last."""
    leaves: dict[str, Json] = {}
    open_objects: list[tuple[str, dict[str, Json]]] = [('', of)]
    while open_objects:
        prefix, current = open_objects.pop()
        for key, value in current.items():
            if isinstance(value, dict):
                open_objects.append((f'{prefix}{key}.', value))
            elif value is not None:
                leaves[_writable(f'{prefix}{key}')] = value
    return leaves


def frequent_fields(of: Objects) -> list[str]:
    """Fields that enough objects have, most frequent first."""
    least = MIN_FIELD_SHARE * len(of.objects)
    often = [field for field, values in of.fields.items() if len(values) >= max(least, 2)]
    return sorted(often, key=lambda field: (-len(of.fields[field]), field))[:MAX_FIELDS]


def kind_of(values: Sequence[Json]) -> FieldKind:
    """What the values of a field are: numbers, or texts of a few categories, or something else."""
    types = collections.Counter(map(json_type, values))
    distinct = len({category_of(value) for value in values if json_type(value) in SCALARS})
    few = distinct <= MAX_CATEGORIES and distinct * MIN_TEXTS_PER_CATEGORY <= len(values)
    if types['number'] >= TYPE_SHARE * len(values):
        return 'number'
    if few and sum(types[each] for each in SCALARS) >= TYPE_SHARE * len(values):
        return 'category'
    return 'other'


def category_of(value: Json) -> str:
    """The name of a value as a category: a text itself, another value as JSON (text and number 1 are one)."""
    return _writable(value) if isinstance(value, str) else json.dumps(value)


def _writable(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may escape and no file may hold."""
    return text.encode('utf-8', 'replace').decode()


def numbers_of(values: Sequence[Json]) -> np.ndarray:
    """The values that are finite numbers in float64, `[n]`."""
    numbers = []
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                continue
            if math.isfinite(number):
                numbers.append(number)
    return np.array(numbers)
