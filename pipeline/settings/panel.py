"""Panels of settings: fields that are documented by their help, and typed values."""

import dataclasses
import math
import types
import typing
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal

# A path of this machine is made absolute before a run starts: workers have another working directory.
# Patterns are several of them, with commas between.
Path = Literal['file', 'patterns']


def setting(
    panel: str,
    help_text: str,
    default: Any = dataclasses.MISSING,
    *,
    choices: Iterable[str] | None = None,
    names_path: bool = True,
    path: Path | None = None,
    presets: Container[str] = (),
    instead_of: str | None = None,
    implies_method: bool = False,
) -> Any:
    """One setting: a field, a key and a flag.

    Args:
        panel: Title of the panel that shows it in `--help`.
        help_text: Its documentation, one sentence or a few.
        default: Its value where nobody gives one.
        choices: The values that it may have, where a table says which: looked at when a config
            is built, so that a later entry of the table is a value too.
        names_path: True if a text may name a file: one that takes any text does until it says
            otherwise (`pipeline.asked.config.path_settings`).
        path: Form in which it names files that workers read; None where it names none.
        presets: Values that name something known in place of a file.
        instead_of: The setting that it takes the place of: a flag for one of the two replaces the other in
            a TOML file.
        implies_method: True if giving it chooses its method where nobody chose one.
    """
    metadata = {
        'panel': panel,
        'help': help_text,
        'choices': choices,
        'names_path': names_path,
        'path': path,
        'presets': presets,
        'instead_of': instead_of,
        'implies_method': implies_method,
    }
    return dataclasses.field(default=default, metadata=metadata)


def setting_types(panel: type) -> dict[str, Any]:
    """The type of each setting by name; a `Literal` of its choices where it has any."""
    hints = typing.get_type_hints(panel)
    types_by_name = {}
    for field in dataclasses.fields(panel):
        choices = field.metadata['choices']
        types_by_name[field.name] = hints[field.name] if choices is None else typing.Literal[tuple(choices)]
    return types_by_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """Settings that `--help` shows together. Each field's help text is its documentation.

    A panel that is made of others has their fields. Each class defines `check` for its own fields alone;
    all of them are called, bases first.
    """

    def __post_init__(self) -> None:
        self._check_types()
        for panel in reversed(type(self).__mro__):
            if 'check' in vars(panel):
                panel.check(self)  # type: ignore[attr-defined]

    def check(self) -> None:
        """Refuses settings of this panel that are out of range or do not go together."""

    def _check_types(self) -> None:
        """Checks each value against its type; whole numbers serve as floats."""
        hints = setting_types(type(self))
        for field in dataclasses.fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            # A union with a Literal is of typing's own kind.
            is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
            options = typing.get_args(hint) if is_union else (hint,)
            for option in options:
                if option is float and isinstance(value, int) and not isinstance(value, bool):
                    object.__setattr__(self, field.name, float(value))
                    break
                if _matches(value, option):
                    break
            else:
                shown = ' or '.join(
                    'nothing' if o is types.NoneType else getattr(o, '__name__', str(o)) for o in options
                )
                if typing.get_origin(options[0]) is typing.Literal:
                    shown = ' or '.join(map(repr, typing.get_args(options[0])))
                raise ValueError(
                    f'Expected {shown} for {field.name}, got {field.name}={value!r}. {field.metadata["help"]}'
                )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={value}. Give a positive whole number.')

    def _check_finite(self, *names: str, above: float = 0) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not (value > above and math.isfinite(value)):
                flag = name.replace('_', '-')
                raise ValueError(
                    f'Expected a finite {name} > {above:g}, got {name}={value!r}. Give '
                    f'--{flag} such a number, or leave it out.'
                )

    def _check_beside(self, other: str, *names: str) -> None:
        """Refuses a value of a setting that has a meaning beside another one alone, which is not given."""
        for name in () if getattr(self, other) else names:
            if (value := getattr(self, name)) != getattr(type(self), name):
                raise ValueError(
                    f'Expected {name} with {other} only, got {name}={value!r}, '
                    f'{other}={getattr(self, other)!r}. Give --{other.replace("_", "-")} too, or leave it '
                    'out.'
                )

    def _check_share(self, name: str) -> None:
        if not 0 < (value := getattr(self, name)) <= 1:
            raise ValueError(f'Expected 0 < {name} <= 1, got {name}={value!r}. Give 1 for all, or a share.')


def _matches(value: Any, option: Any) -> bool:
    origin = typing.get_origin(option)
    if origin is typing.Literal:
        return value in typing.get_args(option)
    if origin is tuple:
        return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
    return isinstance(value, option) and not (option is int and isinstance(value, bool))


def refuse(panels: Iterable[Panel], names: Mapping[str, str], *, beside: str) -> None:
    """Refuses settings that have another value than their default, by their name, with the reason.

    They are looked up in the panels; a name that none has is left out. `beside` is the setting that they do
    not go with, as errors show it.
    """
    fields = {field.name: (panel, field) for panel in panels for field in dataclasses.fields(panel)}
    for name, why in names.items():
        if name not in fields:
            continue
        panel, field = fields[name]
        if (value := getattr(panel, name)) != field.default:
            raise ValueError(f'Expected no {name} with {beside}, got {name}={value!r}. {why} Leave it out.')
