"""Beam's options of a run: no runner shows an element, which is a record."""

import pytest
from apache_beam.options.pipeline_options import DebugOptions
from apache_beam.runners.worker.data_sampler import DataSampler

from pipeline.config import job_config
from pipeline.run.beam_options import beam_options


@pytest.mark.parametrize('runner', ['DataflowRunner', 'FlinkRunner', 'FnApiRunner'])
@pytest.mark.parametrize('given', [[], ['--experiments=a,b'], ['--runner=DataflowRunner']])
def test_workers_sample_no_failed_element_whatever_started_the_run(runner: str, given: list[str]) -> None:
    options = beam_options(job_config(delta=1e-6, epsilon=1, runner=runner), given)
    # As Dataflow does with every job.
    options.view_as(DebugOptions).add_experiment('enable_always_on_exception_sampling')
    assert DataSampler.create(options) is None


def test_experiments_that_were_given_stay() -> None:
    options = beam_options(job_config(delta=1e-6, epsilon=1), ['--experiments=a,b', '--experiments=c'])
    experiments = options.view_as(DebugOptions).experiments
    assert experiments == ['a', 'b', 'c', 'disable_always_on_exception_sampling']


@pytest.mark.parametrize(
    'argument',
    [
        '--experiments=enable_data_sampling',
        '--experiments=enable_data_sampling=true',
        '--experiments=use_runner_v2,enable_always_on_exception_sampling',
        '--experiment=enable_always_on_exception_sampling',
        '--dataflow_service_options=enable_data_sampling',
    ],
)
def test_a_run_that_asks_for_samples_is_refused(argument: str) -> None:
    with pytest.raises(ValueError, match='samples elements'):
        beam_options(job_config(delta=1e-6, epsilon=1), [argument])


def test_keys_of_the_data_are_in_no_log() -> None:
    with pytest.raises(ValueError, match='enable_hot_key_logging'):
        beam_options(job_config(delta=1e-6, epsilon=1), ['--enable_hot_key_logging'])
