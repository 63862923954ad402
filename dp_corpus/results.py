"""Results of the functions: places and documents, as objects that a notebook can show."""

import dataclasses
import functools
import os
from typing import TYPE_CHECKING, final

from models import extras
from models.privacy.report import PrivacyReport
from pipeline.evaluation.evaluation import Evaluation
from pipeline.evaluation.settings import PAGE
from pipeline.pages import evaluation_page, notebook, report_terminal
from pipeline.release.report import read_released, read_report
from transforms.run_files import REPORT_PAGE

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import pyarrow as pa


@final
@dataclasses.dataclass(frozen=True)
class Page:
    """A self-contained HTML page, which a notebook shows in a frame; `path` is None of an unwritten one."""

    html: str = dataclasses.field(repr=False)
    path: str | None

    def __fspath__(self) -> str:
        if self.path is None:
            raise ValueError(
                'Expected a page that was written, got path=None. Give the evaluation an output, or write '
                'its html yourself.'
            )
        return self.path

    def _repr_html_(self) -> str:
        return notebook.framed(self.html)


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """A run's release in the folder `output`. It stands for its folder wherever a path is expected.

    Its parts are read when they are asked for, and are for anyone: nothing of the curator's folder is here.
    """

    output: str

    def __fspath__(self) -> str:
        return self.output

    @functools.cached_property
    def report(self) -> PrivacyReport:
        """The privacy report; a FileNotFoundError of an unfinished run, a ValueError of an edited one."""
        return read_report(self.output)

    @property
    def page(self) -> Page:
        """The privacy report as a page."""
        path = f'{self.output.rstrip("/")}/{REPORT_PAGE}'
        return Page(html=read_released(self.output, REPORT_PAGE), path=path)

    @functools.cached_property
    def table(self) -> 'pa.Table':
        """The corpus as an Arrow table, with all its columns.

        Raises:
            ValueError: The run is not finished.
            FileNotFoundError: It has no texts, as one that trained an adapter alone.
        """
        from pipeline.release import released_corpus

        return released_corpus.read_table(self.output)

    @property
    def frame(self) -> 'pd.DataFrame':
        """The corpus as a frame of pandas, which the extra `notebook` installs."""
        extras.need(extras.NOTEBOOK, use='frame', only='pandas')
        return self.table.to_pandas()

    @property
    def corpus(self) -> 'datasets.Dataset':
        """The corpus as a data set of the library `datasets`, which the extra `notebook` installs."""
        extras.need(extras.NOTEBOOK, use='corpus', only='datasets')
        import datasets

        return datasets.Dataset(self.table)

    def _repr_html_(self) -> str:
        return notebook.shown(lambda console: report_terminal.render(self.report, console, self.output))


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The result of an evaluation; `output` is None where it was not written.

    Where it has read records, it is for the curator alone.
    """

    report: Evaluation = dataclasses.field(repr=False)
    output: str | None

    @functools.cached_property
    def page(self) -> Page:
        """The evaluation as a page, with pictures and texts."""
        path = None if self.output is None else os.path.join(self.output, PAGE)
        return Page(html=evaluation_page.render_html(self.report), path=path)

    @property
    def frame(self) -> 'pd.DataFrame':
        """Every figure as a row: corpus, measure, figure, value, standard_error."""
        extras.need(extras.NOTEBOOK, use='frame', only='pandas')
        import pandas as pd

        return pd.DataFrame([
            {
                'corpus': measured.corpus,
                'measure': result.measure,
                'figure': figure.name,
                'value': figure.value,
                'standard_error': figure.standard_error,
            }
            for measured in self.report.corpora
            for result in measured.measures
            if result.findings is not None
            for figure in result.findings.figures
        ])  # fmt: skip

    def _repr_html_(self) -> str:
        return notebook.shown(lambda console: evaluation_page.render_terminal(self.report, console))
