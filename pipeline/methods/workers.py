"""The model and its prompts for workers, as the settings of any method say it."""

import pathlib
from typing import Any

from apache_beam.io.filesystems import FileSystems

from models import extras
from models.decoders import family
from models.prompt_templates import read_template
from models.prompts import PromptWriter
from pipeline.settings.input import Input
from pipeline.settings.model import Model
from pipeline.settings.prompt import Prompt
from pipeline.settings.runner import Runner
from pipeline.settings.structure import Structured

# A token of any vocabulary stands for fewer characters than this, but for runs of spaces.
CHARACTERS_PER_TOKEN = 32


def text_limit(prompt: Prompt) -> int:
    """Characters of a text that any prompt could use."""
    return prompt.max_prompt_tokens * CHARACTERS_PER_TOKEN


def model_settings(model: Model, runner: Runner) -> dict[str, Any]:
    """The model, its files and its type, and the folder of what is compiled; checks the files."""
    family.family_of(model.model).check_files(model.model, model.model_files)
    for name, path in (('checkpoint', model.checkpoint_path), ('tokenizer', model.tokenizer_path)):
        if not FileSystems.exists(str(path)) and not path.exists():
            raise FileNotFoundError(f'Expected the model at {name}={str(path)!r}, which is not there.')
    return {
        'model': model.model,
        'checkpoint': str(model.checkpoint_path),
        'tokenizer': str(model.tokenizer_path),
        'dtype': model.decided_dtype,
        # Within this process `pipeline.run.start` sees to it, for embedders too.
        'compilation_cache': None if runner.is_local else runner.compiled_folder,
    }


def prompt_writer(settings: Structured, declared: Input) -> PromptWriter:
    """The writer of a run's prompts, without the rest of what decodes."""
    extras.need(extras.GEMMA, use=f'model={settings.model!r}')
    path = settings.tokenizer_path
    if not FileSystems.exists(str(path)) and not path.exists():
        raise FileNotFoundError(f'Expected the model at tokenizer={str(path)!r}, which is not there.')
    return PromptWriter(
        tokenizer=family.family_of(settings.model).load_tokenizer(settings.model, str(path)),
        label_words=declared.label_words,
        **prompt_settings(settings, declared),
    )


def prompt_settings(settings: Structured, declared: Input) -> dict[str, Any]:
    """Settings of the writer of prompts."""
    return {
        'max_prompt_tokens': settings.max_prompt_tokens,
        'template': read_template(settings.prompt_name),
        'label_name': settings.label_name,
        'attributes': settings.label_attributes(declared),
        'text_name': settings.text_name,
        'corpus_description': settings.corpus_description,
        'schema': _schema_text(settings),
        'structure': settings.structure,
        'min_example_tokens': settings.least_tokens,
    }


def _schema_text(settings: Structured) -> str | None:
    """The text that stands for {schema} in a prompt."""
    structure = settings.structure
    if structure is not None and structure.json_schema is not None:
        return structure.json_schema
    path = settings.schema
    return pathlib.Path(path).read_text(encoding='utf-8').strip() if path else None
