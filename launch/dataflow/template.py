"""The Flex Template's metadata: one parameter for each field of `JobConfig`.

Whoever may launch the template sets every one of them, the paths too: see README.md.
"""

import dataclasses
import re
import types
import typing
from typing import Any, Literal

from pipeline.config import JobConfig, setting_types

_REGEXES = {
    'input': r'^gs://\S.*$',
    'output': r'^gs://[^/]+/.+$',
    'work_dir': r'^gs://[^/]+/.+$',
    'run_id': r'^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$',
    'runner': '^DataflowRunner$',
}
_TYPE_REGEXES = {
    int: r'^[+-]?[0-9]+$',
    float: r'^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$',
    bool: '^(true|false)$',
}


def template_metadata() -> dict[str, Any]:
    """The metadata of the Flex Template: one parameter for each field of `JobConfig`.

    Dataflow checks a request against it before anything is started.
    """
    hints = setting_types(JobConfig)
    return {
        'name': 'dp-corpus',
        'description': 'Differentially private synthetic text from records that may not be shared.',
        'parameters': [
            _parameter_metadata(field, hints[field.name]) for field in dataclasses.fields(JobConfig)
        ],
    }


def _parameter_metadata(field: 'dataclasses.Field[Any]', hint: Any) -> dict[str, Any]:
    help_text = field.metadata['help']
    if field.default not in (None, (), dataclasses.MISSING, False):
        help_text += f' Default: {field.default}.'
    parameter: dict[str, Any] = {
        'name': field.name,
        'label': field.name.replace('_', ' ').capitalize(),
        'helpText': help_text,
        # A plan needs neither of them, a run both.
        'isOptional': field.name not in ('input', 'output'),
    }
    regex = _REGEXES.get(field.name) or _regex_of(hint)
    if regex is not None:
        parameter['regexes'] = [regex]
    return parameter


def _regex_of(hint: Any) -> str | None:
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    hint = options[0] if isinstance(hint, types.UnionType) else hint
    if typing.get_origin(hint) is Literal:
        return f'^({"|".join(re.escape(str(option)) for option in typing.get_args(hint))})$'
    return _TYPE_REGEXES.get(hint)
