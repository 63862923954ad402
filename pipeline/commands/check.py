"""`dp-corpus check`: a look at the input as a run would read it, for the curator alone."""

import contextlib
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import rich.box
import rich.console
import rich.table
import rich.text
import typer

from pipeline import methods
from pipeline.asked.chosen import chosen
from pipeline.asked.config import all_settings
from pipeline.check.input_check import InputCheck
from pipeline.commands import exit_codes, flags
from pipeline.screen import off_screen, terminal
from pipeline.settings.job_config import JobConfig

if typing.TYPE_CHECKING:
    from transforms.read import Rejection

# Values that a config needs where no flag says what is spent; no figure here follows from them.
_SPENT = {'epsilon': 1.0, 'delta': 1e-9}
_SPENDING = {
    'epsilon': ('epsilon', 'context_budget', 'max_private_tokens', 'noise_multiplier'),
    'delta': ('delta', 'records'),
}
# Characters of a rejected row that are shown.
SHOWN_CHARACTERS = 300
NOTICE = (
    'For the curator alone: true figures of private records. Nothing of it is released and nothing charged; '
    'settings that follow from it by a rule are tuning on private data, which nobody has paid for '
    '(models/privacy/README.md, section 5).'
)


@flags.with_flags(all_settings().values())
def check(
    config: flags.ConfigFlag = None,
    show_rejected: Annotated[
        int,
        typer.Option(
            '--show-rejected',
            min=0,
            help='Show so many rejected rows, the beginning of each, on this screen alone.',
        ),
    ] = 0,
    as_json: flags.JsonFlag = False,
    **settings: Any,
) -> None:
    """Look at the input as a run would read it: rows, labels, lengths, batches, and what to change.

    For the curator's eyes, before a run is paid for. Give the flags of `generate`; none that says
    what is spent is needed. It ends with 2 where a run would take no row.
    """
    for name, alike in _SPENDING.items():
        if config is None and all(settings.get(other) is None for other in alike):
            settings[name] = _SPENT[name]
    job_config, _ = chosen(config, settings)
    if job_config.input.input is None:
        raise ValueError('Expected an input, got input=None. Give --input FILES.')
    if show_rejected and as_json:
        raise ValueError(
            f'Expected a screen for rejected rows, got show_rejected={show_rejected} with --json. No '
            'document holds rows: leave one of them out.'
        )
    off_screen.silence_libraries()
    console = terminal.console(stderr=True, quiet=as_json)
    with _progress(console) as on_progress, off_screen.without_chatter(), off_screen.unquoted():
        from pipeline.check.records import check_records

        rejected: list[Rejection] = []

        def keep(row: 'Rejection') -> None:
            if len(rejected) < show_rejected:
                rejected.append(row)

        result = check_records(job_config, on_progress, keep)
    if as_json:
        print(result.to_json(), end='')
    else:
        print_check(result, terminal.console(), job_config, rejected)
    if not result.records:
        raise typer.Exit(exit_codes.USAGE)


@contextlib.contextmanager
def _progress(console: rich.console.Console) -> Iterator[Callable[[int], None] | None]:
    """Rows read so far; silent off a terminal."""
    if not console.is_terminal:
        yield None
        return
    # Standard error is held back meanwhile.
    with terminal.console(quiet=console.quiet).status('Reading') as status:
        yield lambda rows: status.update(f'Reading: {rows:,} rows')


def print_check(
    result: InputCheck,
    console: rich.console.Console,
    config: JobConfig,
    rejected: Sequence['Rejection'],
) -> None:
    """The check as tables and sentences, with the declared words of labels, and rejected rows."""

    def plain(text: str, style: str = '') -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    plain(NOTICE, 'bold red')
    console.print()
    view, words = methods.of(config).input_view(config), config.input.declared_words
    facts = rich.table.Table(show_header=False, box=None, pad_edge=False)
    files = result.files[0] if len(result.files) == 1 else f'{len(result.files):,} files'
    rows = [
        ('Input', files),
        ('Records', f'{result.records:,}'),
        (
            'Units of privacy',
            f'{result.units:,}, with at most {result.largest_unit:,} records{_declared(result, config)}',
        ),
        ('Repeated texts', f'{result.duplicates:,}'),
    ]
    rows += [('Rejected' if not place else '', f'{count:,}: {reason}')
             for place, (reason, count) in enumerate(result.rejected.items())]  # fmt: skip
    if result.continued_lines:
        rows.append(
            ('Lines within quotes', f'{result.continued_lines:,}, part of the row that they continue')
        )
    if result.lengths is not None:
        lengths = result.lengths
        rows += [
            (
                'Tokens of a text',
                f'{lengths.median:,} in the middle, {lengths.upper_decile:,} or fewer in nine of ten, '
                f'{lengths.longest:,} at most, of {lengths.texts:,} texts',
            ),
            ('', f'{lengths.room:,} {view.room}; {lengths.share_cut:.1%} of the texts are cut'),
        ]
    for row in rows:
        facts.add_row(*(rich.text.Text(cell) for cell in row))
    console.print(facts)
    console.print()
    labels = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    labels.add_column('Label')
    for name in view.columns:
        labels.add_column(name, justify='right')
    for label in result.labels:
        name = 'all' if label.label is None else f'{label.label} {words.get(label.label, "")}'.strip()
        if not label.declared:
            name += ' (not declared)'
        cells = view.cells(label.contexts, label.batches)
        labels.add_row(rich.text.Text(name), f'{label.records:,}', *cells)
    console.print(labels)
    listed = sum(not label.declared for label in result.labels)
    if result.undeclared > listed:
        plain(f'{result.undeclared - listed:,} labels more that are not declared.')
        console.print()
    if not result.findings:
        plain('Nothing stands out.')
    for finding in result.findings:
        plain(f'- {finding}')
    for one in rejected:
        plain(f'Rejected: {one.file}, row {one.ordinal}: {one.reason.value}')
        plain(f'    {_printable(one.raw)}')


def _printable(raw: bytes) -> str:
    """The beginning of a row, without characters that a terminal obeys."""
    text = raw.decode(errors='backslashreplace')
    shown = ''.join(each if each.isprintable() else repr(each)[1:-1] for each in text[:SHOWN_CHARACTERS])
    return shown + '…' * (len(text) > SHOWN_CHARACTERS)


def _declared(result: InputCheck, config: JobConfig) -> str:
    if result.declared_records is None:
        return ''
    users = ' users' if config.budget.unit == 'user' else ''
    return f'; --records declares {result.declared_records:,}{users}'
