"""Settings as a report shows them: no path of the curator's machine, and texts in place of files.

Paths tell the layout of the curator's machine, and nothing about the guarantee.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from models.decoders import family
from models.prompt_templates import PRESETS
from pipeline.settings.input import Input
from pipeline.settings.job_config import JobConfig
from pipeline.settings.structure import Structured

# Settings of every run, which come first.
OF_EVERY_RUN = (
    'delimiter', 'encoding', 'quoting', 'text_field', 'label_field', 'labels', 'attributes', 'unit_field',
    'record_id_field', 'records', 'sample_rate', 'max_record_bytes', 'keep_rejected', 'unit',
    'examples_per_context', 'epsilon',
)  # fmt: skip


def shown(config: JobConfig, names: Iterable[str], mechanism: Any) -> dict[str, Any]:
    """The values of settings, in the order of their names, but for those that are fields of the mechanism."""
    values, of_mechanism = config.settings(), {field.name for field in dataclasses.fields(mechanism)}
    shown_values = {name: values[name] for name in names if name not in of_mechanism}
    return {
        name: ', '.join(value) if isinstance(value, tuple) else value for name, value in shown_values.items()
    }


def with_texts(
    settings: dict[str, Any], method: Structured, declared: Input, prompt: str | None = None
) -> dict[str, Any]:
    """The settings of `shown` with structure, prompt (in place of the config's) and the model's origin."""
    shown_settings = dict(settings)
    for name, value in (('attributes', declared.attributes), ('fixed', method.fixed)):
        if not value:
            shown_settings.pop(name, None)
    if 'min_example_tokens' in shown_settings:
        shown_settings['min_example_tokens'] = method.least_tokens
    if method.structure is None:
        for name in ('regex', 'close_truncated'):
            shown_settings.pop(name, None)
    else:
        shown_settings.pop('min_example_tokens', None)
        if method.structure.regex is None:
            del shown_settings['regex']
            shown_settings['json_schema'] = method.structure.json_schema
    known_prompt = method.prompt_name in PRESETS
    shown_settings['prompt'] = prompt or (method.prompt_name if known_prompt else 'own template')
    origin = family.family_of(method.model).origin(method.model)
    # A file that the curator brings may be of other weights in the same dimensions.
    made_from = '' if method.checkpoint is None else ', or weights made from it'
    shown_settings['model_origin'] = f'{origin.name} by {origin.maker}{made_from}, under the {origin.terms}'
    return shown_settings
