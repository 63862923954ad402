"""Settings of structured records: what every text has to be."""

import dataclasses
import functools
import json
import pathlib
import typing

from pipeline.settings import panel
from pipeline.settings.prompt import DEFAULT_MIN_TOKENS, Prompt

if typing.TYPE_CHECKING:
    from models.grammars.structure import Structure

_setting = functools.partial(panel.setting, 'Structure')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structured(Prompt):
    """Settings of the structure that every text is held to, if any; its schema may stand in a prompt, too."""

    json_schema: str | None = _setting(
        'File with a JSON Schema that every example is held to, in compact form; what it forces is free. It '
        'also stands for {schema} in a prompt. A keyword that is not enforced is refused by its name. '
        'Public: never take it from the records.',
        None,
        path='file',
    )
    regex: str | None = _setting(
        'Regular expression that every whole example is held to, in place of --json-schema.',
        None,
        names_path=False,
    )
    fixed: tuple[str, ...] = _setting(
        'FIELD=VALUE, comma-separated: declared fields of --json-schema that have this value in every '
        'example, forced and so free; in a TOML file a list of these. A value is JSON, or the characters of '
        'a string.',
        (),
        names_path=False,
    )
    close_truncated: bool = _setting(
        'Finish an example that a cap cut short with the shortest ending of --json-schema or --regex. It '
        'stays marked as truncated.',
        False,
    )

    @property
    def counted_fields(self) -> tuple[str, ...]:
        """Fields of the schema whose values a method counts in the records; none unless it says so."""
        return ()

    def check(self) -> None:
        kinds = {'json_schema': self.json_schema, 'regex': self.regex}
        kinds_given = {name: value for name, value in kinds.items() if value is not None}
        shown = ', '.join(f'{name}={value!r}' for name, value in kinds_given.items())
        if len(kinds_given) > 1:
            raise ValueError(
                f'Expected json_schema or regex, got {shown}. An example is held to one: leave out the other.'
            )
        if self.schema is not None and self.json_schema is not None:
            raise ValueError(
                f'Expected schema or json_schema, got schema={self.schema!r}, {shown}. The file of '
                '--json-schema stands for {schema} in a prompt: leave out --schema.'
            )
        if (self.fixed or self.counted_fields) and self.json_schema is None:
            raise ValueError(
                f'Expected json_schema with fixed and condition_on, got fixed={list(self.fixed)!r}, '
                f'condition_on={list(self.counted_fields)!r}, json_schema=None. Give --json-schema, which '
                'declares the fields.'
            )
        for entry in self.fixed:
            if not all(entry.partition('=')[:2]):
                raise ValueError(
                    f'Expected FIELD=VALUE in fixed, got {entry!r}. Give --fixed ward=Surgery, say.'
                )
        if self.min_example_tokens and kinds_given:
            raise ValueError(
                f'Expected no min_example_tokens with a structure, got '
                f'min_example_tokens={self.min_example_tokens}, {shown}. It says itself where a text ends: '
                'leave --min-example-tokens out.'
            )
        if self.close_truncated and not kinds_given:
            raise ValueError(
                'Expected json_schema or regex with close_truncated, got close_truncated=True and neither. '
                'Give one: nothing else says how a text may end.'
            )

    @property
    def least_tokens(self) -> int:
        """Tokens that an example has before what ends it."""
        if self.json_schema is not None or self.regex is not None:
            return 0
        if self.min_example_tokens is not None:
            return self.min_example_tokens
        return min(DEFAULT_MIN_TOKENS, self.max_example_tokens // 4)

    @functools.cached_property
    def structure(self) -> 'Structure | None':
        """The structure of every example, its automaton built; None for any text. Reads the named file."""
        if self.json_schema is None and self.regex is None:
            return None
        # Needs NumPy: --help answers at once.
        from models.grammars.structure import Structure

        structure = Structure(
            json_schema=None if self.json_schema is None else _text_of_schema(self.json_schema),
            regex=self.regex,
            closes_truncated=self.close_truncated,
            fixed=tuple((name, value) for name, _, value in (entry.partition('=') for entry in self.fixed)),
            condition_on=self.counted_fields,
        )
        try:
            _ = structure.automaton
        except json.JSONDecodeError as error:
            raise ValueError(
                f'Expected JSON in json_schema={self.json_schema!r}, got {error}. Correct the file.'
            ) from None
        return structure


def _text_of_schema(path: str) -> str:
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(
            f'Expected a JSON Schema at json_schema={path!r}, which is no file. Check the path.'
        )
    return pathlib.Path(path).read_text(encoding='utf-8').strip()
