"""The sentences of a report, from the templates of its method.

A template holds sections, each a line `# name` and then its items. An item begins with `- `, goes over as
many lines as it likes, and is one sentence or several of the report. A section with one item needs no mark.
"""

import functools
import math
import re
import typing
from collections.abc import Mapping

from models.privacy import accounting
from models.privacy.numbers import format_exact, format_up
from models.privacy.report import composition
from models.privacy.report.released import PrivacyReport

if typing.TYPE_CHECKING:
    import jinja2


def sections(report: PrivacyReport) -> Mapping[str, tuple[str, ...]]:
    """Every sentence that a report and its pages have, by section.

    The fields of `models.privacy.report.released.SENTENCES` and `LISTS` are sections. Others are for pages
    alone, and may have no item.
    """
    noisy_rho = math.fsum(stage.rho or 0.0 for stage in report.stages)
    one = report.unit_noun
    text = _environment().get_template(f'{report.method.kind}/words.jinja').render(
        report=report,
        method=report.method,
        params=report.method.mechanism,
        one=one,
        many=f'{one}s',
        outside=composition.without_ledger(report.method.further, report.charged_dataset),
        noisy_rho=noisy_rho,
        noisy_epsilon=accounting.epsilon_from_rho(noisy_rho, report.delta) if noisy_rho else None,
    )  # fmt: skip
    return _parsed(text)


def macro(name: str, *arguments: typing.Any) -> str:
    """The text of a macro of shared/macros.jinja."""
    module = _environment().get_template('shared/macros.jinja').module
    return ' '.join(str(getattr(module, name)(*arguments)).split())


def _parsed(text: str) -> dict[str, tuple[str, ...]]:
    named_sections: dict[str, list[list[str]]] = {}
    items: list[list[str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith('# '):
            items = named_sections.setdefault(line[2:], [])
        elif line.startswith('- ') or not items:
            items.append([line.removeprefix('- ')])
        else:
            items[-1].append(line)
    return {name: tuple(' '.join(lines) for lines in section) for name, section in named_sections.items()}


def _one_line(value: object) -> object:
    """A value of a template, on one line: no name can begin a section or an item."""
    return re.sub(r'\s+', ' ', value) if isinstance(value, str) else value


@functools.cache
def _environment() -> 'jinja2.Environment':
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('models.privacy.report', 'templates'),
        undefined=jinja2.StrictUndefined,
        finalize=_one_line,
        auto_reload=False,
    )
    environment.filters |= {
        'exact': format_exact,
        'log': math.log,
        'noun': lambda unit: 'user' if unit == 'user' else 'record',
        'repr': repr,
        'thousands': '{:,}'.format,
        'up': format_up,
    }
    return environment
