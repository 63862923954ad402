"""The metadata of the Flex Template: one parameter for each setting.

A user who may launch the template may set every parameter, also the paths: see docs/deploying/dataflow.md.
"""

import re
import types
import typing
from typing import Any, Literal

from pipeline.asked.config import Setting, all_settings

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
    """The metadata of the Flex Template. Dataflow checks a request against it before anything starts."""
    return {
        'name': 'dp-corpus',
        'description': 'Differentially private synthetic text from records that may not be shared.',
        'parameters': [_parameter_metadata(setting) for setting in all_settings().values()],
    }


def _parameter_metadata(setting: Setting) -> dict[str, Any]:
    help_text = setting.help
    if setting.default not in (None, (), False):
        help_text += f' Default: {setting.default}.'
    parameter: dict[str, Any] = {
        'name': setting.name,
        'label': setting.name.replace('_', ' ').capitalize(),
        'helpText': help_text,
        # The config has defaults for both, as a plan needs neither. A run needs both.
        'isOptional': setting.name not in ('input', 'output'),
    }
    regex = _REGEXES.get(setting.name) or _regex_of(setting.type)
    if regex is not None:
        parameter['regexes'] = [regex]
    return parameter


def _regex_of(hint: Any) -> str | None:
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    hint = options[0] if isinstance(hint, types.UnionType) else hint
    if typing.get_origin(hint) is Literal:
        return f'^({"|".join(re.escape(str(option)) for option in typing.get_args(hint))})$'
    return _TYPE_REGEXES.get(hint)
