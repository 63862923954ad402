"""Runs from a config to their end, as `dp-corpus generate` makes them but for what it shows."""

from collections.abc import Sequence
from typing import Any

from apache_beam.runners.runner import PipelineResult

from pipeline import methods
from pipeline.run import start
from pipeline.settings.job_config import JobConfig


def launch(config: JobConfig[Any], beam_arguments: Sequence[str]) -> PipelineResult:
    """Solves a config and carries the run out; errors as of `pipeline.run.start.carry_out`."""
    run = methods.solve(config, launch=True)
    return start.carry_out(run, methods.of(run).prepare(run), beam_arguments)
