"""A config from its TOML file and the flags on top. `JobConfig.to_toml` is the way back."""

import dataclasses
import difflib
import pathlib
import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from pipeline.config.job_config import JobConfig

# A run has one of these, and the others follow.
_BUDGETS = ('epsilon', 'max_private_tokens', 'context_budget')


def read_config(path: str | None, flags: Mapping[str, Any], keys: Collection[str] | None = None) -> JobConfig:
    """Builds the config from a TOML file and flags; flags win.

    Args:
        path: The TOML file, or None.
        flags: Values by field name; None means that the flag was not given.
        keys: What the file may hold; None for every setting.

    Raises:
        ValueError: An unknown key, one that is not among `keys`, a value of another type, or settings that
            do not fit.
        FileNotFoundError: There is no such file.
    """
    entries: dict[str, Any] = {}
    if path is not None:
        file = pathlib.Path(path)
        if not file.is_file():
            raise FileNotFoundError(f'Expected a TOML file, got config={path!r}, which is not there.')
        try:
            entries = tomllib.loads(file.read_text(encoding='utf-8'))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f'Expected TOML in config={path!r}, got: {error}.') from error
    names = [field.name for field in dataclasses.fields(JobConfig)]
    for key in entries:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f'Did you mean {near[0]}?' if near else 'See dp-corpus generate --help for the keys.'
            raise ValueError(f'Expected only known keys in config={path!r}, got key={key!r}. {hint}')
        if keys is not None and key not in keys:
            raise ValueError(
                f'Expected only settings of this command in config={path!r}, got key={key!r}. Its flags are '
                'all that it has: leave the key out.'
            )
    for name in ('labels', 'attributes', 'fixed', 'condition_on', 'label_mix'):
        if isinstance(entries.get(name), list):
            entries[name] = tuple(entries[name])
    if isinstance(entries.get('labels'), dict):
        entries['labels'] = _labels_of(entries['labels'])
    if any(flags.get(name) is not None for name in _BUDGETS):
        for name in _BUDGETS:
            entries.pop(name, None)  # a flag replaces its counterpart in the file
    entries |= {name: value for name, value in flags.items() if value is not None}
    if entries.get('adapter') is not None:
        entries.setdefault('method', 'fine-tune')  # the only one that has adapters
    return JobConfig(**entries)


def _labels_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Labels as flags give them, VALUE=WORDS, from a table of words by value; of attributes one for each."""
    found: list[str] = []
    for value, words in table.items():
        if isinstance(words, dict) and not any(isinstance(of, dict) for of in words.values()):
            found += (f'{value}:{declared}' for declared in _labels_of(words))
        elif isinstance(words, str) and '=' not in value:
            found.append(f'{value}={words}' if words else value)
        else:
            raise ValueError(
                f'Expected a table of words by label, got labels.{value}={words!r}. Write '
                '2 = "digestive system diseases", and no = in a label.'
            )
    return tuple(found)
