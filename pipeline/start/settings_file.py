"""A TOML file of settings that says of each one where it comes from."""

import dataclasses
import pathlib
import textwrap
import types
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from models import bundled, fetched
from pipeline import methods
from pipeline.asked import config
from pipeline.methods.follows import Follows
from pipeline.plan import comparison
from pipeline.settings.job_config import JobConfig
from pipeline.start import answers as answers_lib
from transforms import places

_WIDTH = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started:
    """The run that a written file describes, and all methods side by side, of which one was taken."""

    compared: comparison.Comparison
    config: JobConfig


def write(answers: Mapping[str, Any], method: str | None, model: str | None, path: str) -> Started:
    """Writes the settings that follow from answers; None stands for the method and the model that suit."""
    answered = dict(answers)
    followed = {'model': _model()} if model is None else {}
    if model is not None:
        answered['model'] = model
    followed |= answers_lib.names(answers)
    values = {**answered, **{name: each.value for name, each in followed.items()}}
    compared = comparison.compare(values)
    chosen = method or compared.recommended
    if chosen is None:
        why = ' '.join(f'{each.method}: {each.why_not}' for each in compared.methods)
        raise ValueError(f'Expected a method that fits, got none. {why}')
    if method is not None:
        answered[config.METHOD] = method
    else:
        followed = {config.METHOD: Follows(value=chosen, because=compared.because), **followed}
    followed |= methods.METHODS[chosen].on_this_machine()
    values |= {config.METHOD: chosen, **{name: each.value for name, each in followed.items()}}
    followed |= config.following(**values)
    folder = f'{places.stem_of(answers["input"])}-synthetic'
    last = {
        'output': Follows(
            value=folder,
            because=f'The corpus and its report: publish these. {folder}.curator holds the run key and true '
            'counts: never publish it.',
        )
    }
    everything = {**answered, **{name: each.value for name, each in (followed | last).items()}}
    job_config = config.job_config(**everything)
    text = commented(
        (
            'Settings of one run, written by `dp-corpus start`. Run it with',
            f'    dp-corpus generate --config {path}',
            'Every key is a flag of `generate`, whose --help explains it; a flag wins over this file. Remove',
            'a line that follows from others, and it follows anew. No record decided any line here.',
        ),
        answered,
        followed,
        last,
        answers_lib.notes(answers),
    )
    pathlib.Path(path).write_text(text, encoding='utf-8')
    return Started(compared=compared, config=job_config)


def _model() -> Follows:
    """Gemma 3 270M where its weights were fetched, else the bundled model, with how to get the other."""
    if fetched.fetched_file().is_file():
        return Follows(
            value=fetched.MODEL, because='Its weights are here: the smallest model that writes English.'
        )
    return Follows(
        value=bundled.MODEL,
        because=f'No weights of {fetched.MODEL} are here. The bundled model shows that everything works, and '
        f'writes no English. {fetched.REMEDY}, then repeat `dp-corpus start` with --force.',
    )


def commented(
    head: Sequence[str],
    answered: Mapping[str, Any],
    followed: Mapping[str, Follows],
    last: Mapping[str, Follows],
    notes: Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    """The text of a file: what was said, what follows from it and why, and what is written where.

    `notes` are the meanings of some of the settings that were said, by name.
    """
    lines = [*(f'# {_plain(line)}'.rstrip() for line in head), '', '# --- What you said', '']
    for name, value in answered.items():
        lines += [*_comment(notes.get(name, '')), _entry(name, value)]
    for title, entries in (('What follows from it', followed), ('What is written', last)):
        lines += ['', f'# --- {title}']
        for name, follows in entries.items():
            lines += ['', *_comment(follows.because), _entry(name, follows.value)]
    return '\n'.join(lines) + '\n'


def _entry(name: str, value: Any) -> str:
    return tomli_w.dumps({name: list(value) if isinstance(value, tuple) else value}).rstrip('\n')


def _comment(text: str) -> list[str]:
    # A word is never cut: a path or a command may be copied.
    return textwrap.wrap(
        _plain(text), _WIDTH, initial_indent='# ', subsequent_indent='# ', break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _plain(text: str) -> str:
    """A text on one line without characters that no comment of TOML may have."""
    return ''.join(each if each.isprintable() else ' ' for each in text)
