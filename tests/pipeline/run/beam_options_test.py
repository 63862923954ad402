"""Beam's options of a run: no runner shows an element, which is a record, or opens a port to strangers."""

import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions
from apache_beam.runners.runner import create_runner
from apache_beam.runners.worker.data_sampler import DataSampler

from pipeline.asked.config import job_config
from pipeline.run.beam_options import beam_options


@pytest.mark.parametrize('runner', ['DataflowRunner', 'FlinkRunner', 'FnApiRunner'])
@pytest.mark.parametrize('given', [[], ['--experiments=a,b'], ['--job_name=a']])
def test_workers_sample_no_failed_element_whatever_started_the_run(runner: str, given: list[str]) -> None:
    options = beam_options(runner, [*given, '--flink_master=flink:8081'])
    # As Dataflow does with every job.
    options.view_as(DebugOptions).add_experiment('enable_always_on_exception_sampling')
    assert DataSampler.create(options) is None


def test_experiments_that_were_given_stay() -> None:
    options = beam_options('FnApiRunner', ['--experiments=a,b', '--experiments=c'])
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
        beam_options('FnApiRunner', [argument])


def test_keys_of_the_data_are_in_no_log() -> None:
    with pytest.raises(ValueError, match='enable_hot_key_logging'):
        beam_options('FnApiRunner', ['--enable_hot_key_logging'])


# --- Ports: tests/attacks/sockets_test.py watches runs ---------------------------

CLUSTER = ('--flink_master=flink:8081', '--environment_type=EXTERNAL', '--environment_config=localhost:50000')


@pytest.mark.parametrize(
    ('runner', 'arguments', 'said'),
    [
        ('FnApiRunner', ('--direct_running_mode=multi_processing',), 'direct_num_workers=N gives N threads'),
        ('DirectRunner', ('--direct_running_mode=multi_threading',), 'direct_num_workers=N gives N threads'),
        # Its parser takes the beginning of a name.
        ('FnApiRunner', ('--direct_running=multi_processing',), 'direct_running'),
        ('FnApiRunner', ('--runner=PrismRunner',), '--runner=PrismRunner after --'),
        ('DirectRunner', ('--runner', 'DirectRunner'), 'Give it before --'),
        ('FlinkRunner', (), r"flink_master='\[auto\]'. .* launch/flink/flink.sh run"),
        ('FlinkRunner', (*CLUSTER[1:], '--flink_master=[local]'), r"flink_master='\[local\]'"),
        ('FlinkRunner', (*CLUSTER, '--environment_type=LOOPBACK'), 'an engine that has its own workers'),
        (
            'PortableRunner',
            ('--job_endpoint=flink:8099', '--environment_type=beam:env:embedded_python_loopback:v1'),
            'an engine that has its own workers',
        ),
        ('PortableRunner', (*CLUSTER[1:], '--job_endpoint=embed'), "job_endpoint='embed'"),
    ],
)
def test_what_would_open_a_port_is_refused_by_name(
    runner: str, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        beam_options(runner, arguments)


@pytest.mark.parametrize(
    'name',
    [
        'PrismRunner', 'prism', 'direct', 'SwitchingDirectRunner', 'InteractiveRunner', 'SparkRunner',
        'apache_beam.runners.portability.prism_runner.PrismRunner',
    ],
)  # fmt: skip
def test_another_runner_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f'got runner={name!r}. .* give FnApiRunner, which opens none'):
        job_config(delta=1e-6, epsilon=1, runner=name)


def test_the_name_that_users_know_is_the_runner_that_opens_nothing() -> None:
    options = beam_options('DirectRunner', [])
    assert type(create_runner(options.view_as(StandardOptions).runner)).__name__ == 'FnApiRunner'
    # The twin: by itself Beam takes the name for one that tries others first.
    alone = PipelineOptions(['--runner=DirectRunner']).view_as(StandardOptions)
    assert type(create_runner(alone.runner)).__name__ == 'SwitchingDirectRunner'


@pytest.mark.parametrize(
    ('runner', 'arguments'),
    [
        ('FlinkRunner', CLUSTER),
        ('FlinkRunner', (*CLUSTER, '--flink_submit_uber_jar')),
        ('PortableRunner', (*CLUSTER[1:], '--job_endpoint=localhost:8099')),
        ('FnApiRunner', ('--direct_num_workers=2', '--direct_running_mode=in_memory')),
        ('DataflowRunner', ('--project=p', '--region=us-central1')),
    ],
)
def test_documented_ways_are_accepted(runner: str, arguments: tuple[str, ...]) -> None:
    beam_options(runner, arguments)
