"""`dp-corpus report`: shows the privacy report of a finished run again."""

import pathlib
from typing import Annotated

import rich.console
import typer

from models.privacy.report import PrivacyReport
from pipeline.commands import flags
from pipeline.pages import report_page, report_terminal
from pipeline.screen import terminal
from transforms.places import check_filesystem
from transforms.run_files import REPORT


def report(
    output: Annotated[str, typer.Argument(help="A finished run's corpus folder.", metavar='OUTPUT')],
    as_json: flags.JsonFlag = False,
    html: Annotated[
        str | None,
        typer.Option('--html', help='Write the page to this file (- for standard output).', metavar='FILE'),
    ] = None,
) -> None:
    """Show the privacy report of a finished run: in the terminal, as JSON or as a page.

    Example: dp-corpus report corpus --html report.html
    """
    if html is not None:
        page = report_page.render_html(read_report(output))
        if html == '-':
            print(page)
        else:
            pathlib.Path(html).write_text(page, encoding='utf-8')
        return
    show_report(output, as_json=as_json, quiet=False)


def read_report(output: str) -> PrivacyReport:
    """The privacy report of a run's output.

    Raises:
        FileNotFoundError: No finished run has written there.
        ValueError: The report is not one, or was edited.
    """
    return PrivacyReport.from_json(read_released(output, REPORT))


def read_released(output: str, name: str) -> str:
    """A file of text beside a corpus.

    Raises:
        FileNotFoundError: No finished run has written there.
    """
    try:
        return _read(output, name).decode()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'Expected the corpus folder of a finished run, got no {name} in {output!r}. '
            'Give the folder that --output named.'
        ) from error


def _read(output: str, name: str) -> bytes:
    if '://' not in output:
        return (pathlib.Path(output) / name).read_bytes()
    check_filesystem(output)
    # Beam takes seconds to load, and only a bucket needs it.
    from apache_beam.io.filesystems import FileSystems

    from transforms.durable import read_file

    return read_file(FileSystems.join(output, name))


def show_report(output: str, *, as_json: bool, quiet: bool) -> None:
    """Shows the report of a run's output in the terminal, or prints its JSON.

    Raises:
        FileNotFoundError: No finished run has written there.
        ValueError: The report is not one, or was edited.
    """
    privacy_report = read_report(output)
    if as_json:
        print(privacy_report.to_json(), end='')
    elif not quiet:
        render(privacy_report, output, terminal.console())


def render(privacy_report: PrivacyReport, output: str, console: rich.console.Console) -> None:
    """Prints a report, and where it is."""
    report_terminal.render(privacy_report, console)
    what = 'Corpus' if privacy_report.has_texts else 'Adapter'
    console.print(f'{what} and report: {output}', soft_wrap=True)
