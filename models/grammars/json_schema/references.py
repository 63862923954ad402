"""References within a schema: `$ref` to a place in the same file."""

import urllib.parse
from collections.abc import Mapping
from typing import Any

from models.grammars.json_schema.keywords import UnsupportedKeywordError, malformed


class References:
    """The places of one schema, as `$ref` names them.

    Attributes:
        root: The whole schema.
    """

    def __init__(self, root: Any) -> None:
        self.root = root

    def target(self, reference: Any, place: str) -> Any:
        """The schema that a reference names.

        Args:
            reference: The value of `$ref`.
            place: JSON pointer of the schema that holds it.

        Raises:
            UnsupportedKeywordError: It leads out of this file, or to a place with an `$id`.
            ValueError: There is no such place.
        """
        if not isinstance(reference, str) or (reference != '#' and not reference.startswith('#/')):
            raise UnsupportedKeywordError('$ref', place, f'{reference!r} is not in this file as "#/..."')
        schema = self.root
        for part in reference.split('/')[1:]:
            name = urllib.parse.unquote(part).replace('~1', '/').replace('~0', '~')
            if isinstance(schema, Mapping) and name in schema:
                schema = schema[name]
            elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
                schema = schema[int(name)]
            else:
                raise malformed('$ref', 'a place in this file', reference, place)
            if isinstance(schema, Mapping) and '$id' in schema:
                raise UnsupportedKeywordError('$id', place, 'it changes what references mean. Remove it')
        return schema

    def resolved(self, schema: Any, place: str) -> Any:
        """A schema with the references at its root followed; one that refers to itself is given back."""
        seen: set[str] = set()
        while isinstance(schema, Mapping) and '$ref' in schema and schema['$ref'] not in seen:
            seen.add(schema['$ref'])
            schema = self.target(schema['$ref'], place)
        return schema
