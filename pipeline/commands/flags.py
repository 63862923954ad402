"""Flags of the command line: one for each field of `JobConfig`, and those that several commands share.

Flags are made from the fields, so that a field, a key of the TOML file and a flag are one thing.
"""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal

import typer

from pipeline.config import (
    DELIMITER_HELP,
    ENCODING_HELP,
    Encoding,
    JobConfig,
    read_config,
    setting_types,
)

ConfigFlag = Annotated[
    str | None,
    typer.Option('--config', help='TOML file whose keys are the flags below; flags win.', metavar='FILE'),
]
JsonFlag = Annotated[bool, typer.Option('--json', help='Print one JSON object and nothing else.')]
QuietFlag = Annotated[bool, typer.Option('--quiet', help='Print nothing but errors.')]
InputFlag = Annotated[
    str, typer.Option('--input', help='Files of texts: JSONL, CSV or Parquet; globs and comma lists.')
]
TextFieldFlag = Annotated[str, typer.Option('--text-field', help='Column of the text.')]
DelimiterFlag = Annotated[str | None, typer.Option('--delimiter', help=DELIMITER_HELP)]
EncodingFlag = Annotated[Encoding | None, typer.Option('--encoding', help=ENCODING_HELP)]
EmbedderFlag = Annotated[
    str, typer.Option('--embedder', help='tfidf, minilm, decoder, or a folder of MiniLM weights.')
]
ModelFlag = Annotated[str, typer.Option('--model', help='Model size, for the embedder decoder.')]
CheckpointFlag = Annotated[str | None, typer.Option('--checkpoint', help='Its weights.')]
TokenizerFlag = Annotated[str | None, typer.Option('--tokenizer', help='Its SentencePiece file.')]
DtypeFlag = Annotated[
    Literal['float32', 'bfloat16'], typer.Option('--dtype', help='Type of its weights and computation.')
]
SeedFlag = Annotated[int, typer.Option('--seed', help='Public seed of the clustering.')]


def with_config_flags(
    command: Callable[..., None], names: Collection[str] | None = None
) -> Callable[..., None]:
    """Gives a command one flag for each field of `JobConfig`, grouped by meaning.

    Args:
        command: The command.
        names: The fields that it has flags for; None for all.
    """
    hints = setting_types(JobConfig)
    signature = inspect.signature(command)
    parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for field in dataclasses.fields(JobConfig):
        if names is not None and field.name not in names:
            continue
        default = field.default
        text = field.metadata['help']
        if default not in (None, (), dataclasses.MISSING, False):
            text += f' [dim](default: {default})[/dim]'
        hint = hints[field.name]
        base = str if hint == tuple[str, ...] else hint
        name = '--' + field.name.replace('_', '-')
        option = typer.Option(
            f'{name}/--no-{name[2:]}' if base is bool else name,
            help=text,
            rich_help_panel=field.metadata['panel'],
            show_default=False,
        )
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[base | None, option],
            )
        )
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def config_of(path: str | None, flags: dict[str, Any], names: Collection[str] | None = None) -> JobConfig:
    """The config of a file and of flags: see `read_config`."""
    for name, hint in setting_types(JobConfig).items():
        if hint == tuple[str, ...] and isinstance(flags.get(name), str):
            flags[name] = tuple(part.strip() for part in flags[name].split(',') if part.strip())
    return read_config(path, flags, names)
