"""The published schemas, which pydantic makes from the types that write the JSON.

A field that is added, renamed or dropped there changes the schema here; a test compares the files of this
folder with what is made. Write them anew with `python -m pipeline.schemas.generated`.
"""

import dataclasses
import inspect
import json
import pathlib
import re
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import pydantic

from models.finetuning import adapter
from models.privacy.report import PrivacyReport
from pipeline.evaluation import evaluation
from pipeline.ledger.tables import SCHEMA_VERSION as LEDGER_VERSION
from pipeline.methods.evolve.plan import VotingPlan
from pipeline.methods.fine_tune.plan import TuningPlan
from pipeline.methods.predict.plan import PredictionPlan
from pipeline.methods.tune_refine.plan import TunedVotingPlan
from pipeline.schemas.documents import DOCUMENTS, SUFFIX, names
from pipeline.schemas.ledger import Export

DIALECT = 'https://json-schema.org/draft/2020-12/schema'


class Failure(TypedDict):
    """Why a command did not do what it was asked to.

    Attributes:
        error: The error and its causes, for people.
        exit_code: The command's exit code.
    """

    error: str
    exit_code: int


_ROOTS: Mapping[str, Any] = {
    'privacy-report': PrivacyReport,
    'adapter': adapter.AdapterCard,
    'ledger': Export,
    'evaluation': evaluation.Evaluation,
    'plan': PredictionPlan | TuningPlan | TunedVotingPlan | VotingPlan,
    'failure': Failure,
}
# Keys that stand before those of the type.
_HEADERS: Mapping[str, Mapping[str, Any]] = {
    'ledger': {'schema': {'const': 'dp-corpus/ledger'}, 'schema_version': {'const': LEDGER_VERSION}},
    'evaluation': {
        'schema': {'const': evaluation.SCHEMA},
        'schema_version': {'const': evaluation.SCHEMA_VERSION},
        'audience': {'enum': [evaluation.RESTRICTED, evaluation.SHAREABLE]},
    },
}


def generate(name: str) -> str:
    """The schema of a document as text, made from its type."""
    root = _ROOTS[name]
    made = pydantic.TypeAdapter(root).json_schema(mode='serialization')
    if header := _HEADERS.get(name):
        made['properties'] = {**header, **made['properties']}
    explained = {cls.__name__: _explained(cls) for cls in _classes(root)}
    for title, node in (*made.get('$defs', {}).items(), (getattr(root, '__name__', ''), made)):
        about = explained.get(title)
        if about is not None:
            node['description'] = about.pop('', '')
            for key in about.keys() & node['properties'].keys():
                node['properties'][key]['description'] = about[key]
    _close(made)
    where = ' '.join(filter(None, (DOCUMENTS[name], made.pop('description', ''))))
    head = {'$schema': DIALECT, 'title': f'dp-corpus {name}', 'description': where}
    return json.dumps(head | made, indent=2, ensure_ascii=False) + '\n'


def _close(node: Any) -> None:
    """Drops titles that repeat keys, and closes objects of known keys: all are written, and no other."""
    if isinstance(node, list):
        for item in node:
            _close(item)
    if not isinstance(node, dict):
        return
    if isinstance(node.get('title'), str):
        del node['title']
    for key, value in node.items():
        for item in value.values() if key in ('properties', '$defs') else (value,):
            _close(item)
    if 'properties' in node:
        for value in node['properties'].values():
            value.pop('default', None)
        node |= {'required': list(node['properties']), 'additionalProperties': False}


def _classes(kind: Any, seen: frozenset[Any] = frozenset()) -> set[Any]:
    """All dataclasses and TypedDicts that a type mentions, at any depth."""
    if kind in seen:
        return set()
    seen |= {kind}
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind).values()
        return {kind}.union(*(_classes(hint, seen) for hint in hints))
    # A literal's arguments are values.
    arguments = () if typing.get_origin(kind) is Literal else typing.get_args(kind)
    return set().union(*(_classes(argument, seen) for argument in arguments))


def _explained(cls: Any) -> dict[str, str]:
    """The docstring of a class, under '', and those of its attributes."""
    docstrings: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        text = inspect.cleandoc(each.__doc__ or '')
        about, _, rest = text.partition('\n\nAttributes:\n')
        rows = re.findall(r'^ {4}(\w+): (.*(?:\n {8}.*)*)', rest, re.MULTILINE)
        docstrings |= {'': ' '.join(about.split()), **{key: ' '.join(words.split()) for key, words in rows}}
    return docstrings


if __name__ == '__main__':
    for each in names():
        pathlib.Path(__file__).with_name(f'{each}{SUFFIX}').write_text(generate(each), encoding='utf-8')
