"""One run's settings: what every run has, and those of its one method."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.output import Output
from pipeline.settings.panel import Panel
from pipeline.settings.runner import Runner

# Panels that every run has, by their field of `JobConfig`.
OF_EVERY_RUN: Mapping[str, type[Panel]] = {
    'input': Input,
    'budget': Budget,
    'output': Output,
    'runner': Runner,
}


# Units that the default of delta counts with at the least: of a few hundred, `records ** -1.1` would leave
# out a chance of 1 in 1,000.
_FEWEST_FOR_DELTA = 10_000


def delta_of(declared: Input, budget: Budget) -> float | None:
    """delta as given, or by the declared number: n ** -1.1, rounded down to three digits; or None.

    n is the number of units, or 10,000 where they are fewer.
    """
    if budget.delta is not None or declared.records is None:
        return budget.delta
    exact = max(declared.records, _FEWEST_FOR_DELTA) ** -1.1
    unit = 10.0 ** (math.floor(math.log10(exact)) - 2)
    # Through text, so that the number that is printed is the number that is meant.
    return float(f'{math.floor(exact / unit) * unit:.2e}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobConfig[M: MethodSettings]:
    """One run's settings, validated when built. All of them are public; the run key is not among them.

    `input.input` and `output.output` may be None for `plan`, which reads and writes nothing.
    """

    input: Input
    budget: Budget
    method: M
    output: Output
    runner: Runner

    def __post_init__(self) -> None:
        self.method.check_budget(self.budget)
        if self.budget.delta is None and self.input.records is None and self.method.reads_records:
            raise ValueError(
                'Expected delta or a declared number of records, got delta=None, records=None. '
                'Give --delta, or --records N, from which it follows. The true number is private, never used.'
            )
        if (self.budget.unit == 'user') != (self.input.unit_field is not None):
            raise ValueError(
                f"Expected unit_field exactly with unit='user', got unit={self.budget.unit!r}, "
                f'unit_field={self.input.unit_field!r}. Name the column of the user ids and pass --unit user.'
            )
        if self.input.input is not None:
            self.input.check_text_flags(self._places())
        self.method.check_run(self.input, self.budget, self.output, delta_of(self.input, self.budget))

    def _places(self) -> Iterator[str]:
        """Places that the run reads texts of: the records, and public texts beside them."""
        for settings in (self.input, self.method):
            for field in dataclasses.fields(settings):
                if (
                    field.metadata['path'] == 'patterns'
                    and (place := getattr(settings, field.name)) is not None
                ):
                    yield place

    @property
    def delta(self) -> float:
        delta = delta_of(self.input, self.budget)
        assert delta is not None  # checked when built
        return delta

    def settings(self) -> dict[str, Any]:
        """Every setting by its name, which is its flag's and its key's; the method's name among them."""
        return {name: value for _, name, value in self._fields()}

    def _fields(self) -> Iterator[tuple[str, str, Any]]:
        """(panel, name, value) of every setting, in the order of `--help`."""
        for part in dataclasses.fields(self):
            settings = getattr(self, part.name)
            if part.name == 'method':
                yield 'Method', 'method', settings.name
            fields = dataclasses.fields(settings)
            if part.name == 'method':
                fields = tuple(sorted(fields, key=lambda one: settings.panels.index(one.metadata['panel'])))
            for field in fields:
                yield field.metadata['panel'], field.name, getattr(settings, field.name)

    def replace(self, **changed: Any) -> 'JobConfig[M]':
        """The config with other values of settings, by their names; its method stays."""
        parts: dict[str, dict[str, Any]] = {}
        for name, value in changed.items():
            parts.setdefault(self._part_of(name), {})[name] = value
        panels = {name: dataclasses.replace(getattr(self, name), **values) for name, values in parts.items()}
        return dataclasses.replace(self, **panels)

    def _part_of(self, name: str) -> str:
        for part in dataclasses.fields(self):
            if name in {field.name for field in dataclasses.fields(getattr(self, part.name))}:
                return part.name
        raise ValueError(f'Expected a setting of method={self.method.name!r}, got {name!r}. Leave it out.')

    def to_toml(self) -> str:
        """The config as TOML that `pipeline.asked.config.read_config` reads back; panels are comments."""
        lines: list[str] = []
        panel = None
        for of_panel, name, value in self._fields():
            if of_panel != panel:
                panel = of_panel
                lines.append(f'{"" if not lines else chr(10)}# {panel}')
            if value is None:
                lines.append(f'# {name} is not set')
            else:
                plain = list(value) if isinstance(value, tuple) else value
                lines.append(tomli_w.dumps({name: plain}).rstrip('\n'))
        return '\n'.join(lines) + '\n'
