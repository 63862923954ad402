"""Runs from a config to their end, as `dp-corpus generate` makes them but for what it shows."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from apache_beam.runners.runner import PipelineResult

from models.privacy.report import PrivacyReport
from pipeline import methods
from pipeline.run import start
from pipeline.settings.job_config import JobConfig
from transforms import run_files


def launch(config: JobConfig[Any], beam_arguments: Sequence[str]) -> PipelineResult:
    """Solves a config and carries the run out; errors as of `pipeline.run.start.carry_out`."""
    run = methods.solve(config, launch=True)
    return start.carry_out(run, methods.of(run).prepare(run), beam_arguments)


def report_of(output: pathlib.Path) -> PrivacyReport:
    """The report of a finished run's output."""
    return PrivacyReport.from_json((output / run_files.REPORT).read_text(encoding='utf-8'))


def rows_of(output: pathlib.Path) -> list[dict[str, Any]]:
    """All rows of a finished run's corpus, in the order of its shards."""
    return [row for path in sorted((output / 'data').iterdir()) for row in pq.read_table(path).to_pylist()]
