"""Beam's options of a run, and those that no run may have."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES

from pipeline.settings.runner import FLINK

# Experiments that show elements, which are records here, in a runner's UI.
_SHOWS_ELEMENTS = frozenset({'enable_data_sampling', 'enable_always_on_exception_sampling'})
# Dataflow adds the second of them to every job by itself; workers obey this one first.
_SHOWS_NOTHING = 'disable_always_on_exception_sampling'
# Under this name Beam tries Prism first, and opens a pool of workers to every network while it does.
_RUNNERS = {'DirectRunner': 'FnApiRunner'}
# Places of an engine's workers. Beam's others are in this process, and called over ports.
_ENVIRONMENTS = (None, 'EXTERNAL', 'DOCKER', 'PROCESS')


def beam_options(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options from the runner and what followed after `--`.

    Samples of elements whose step failed are off, whatever started the run.

    Raises:
        ValueError: Beam does not know an option and would drop it with a warning, an option shows
            records in the runner's UI, or it would open a port to anybody.
    """
    # Beam drops without a word what belongs to no option.
    strays = [
        argument
        for before, argument in zip(['', *arguments], arguments)
        if not argument.startswith('--') and ('=' in before or not before.startswith('--'))
    ]
    if strays:
        raise ValueError(
            f"Expected only Beam's options, --name=value, after --, got arguments={strays}. "
            'Check their spelling.'
        )
    runner = _RUNNERS.get(runner, runner)
    options = PipelineOptions([f'--runner={runner}', *arguments])
    known = options.get_all_options(retain_unknown_options=False)
    if unknown := sorted(set(options.get_all_options(retain_unknown_options=True)) - set(known)):
        raise ValueError(
            f"Expected only Beam's options after --, got options={unknown}. Check their spelling."
        )
    debug, cloud = options.view_as(DebugOptions), options.view_as(GoogleCloudOptions)
    asked = (*(debug.experiments or ()), *(cloud.dataflow_service_options or ()))
    if shown := sorted({option for option in asked if option.partition('=')[0].strip() in _SHOWS_ELEMENTS}):
        raise ValueError(
            f'Expected no experiment that samples elements, got experiments={shown}. '
            'They would show records to everyone who sees the job: leave them out.'
        )
    if cloud.enable_hot_key_logging:
        raise ValueError(
            'Expected keys of the data in no log, got enable_hot_key_logging=True. Leave the option out.'
        )
    _refuse_open_ports(options, runner)
    debug.add_experiment(_SHOWS_NOTHING)
    return options


def _refuse_open_ports(options: PipelineOptions, runner: str) -> None:
    """Refuses what has Beam listen on every interface of this machine, without credentials.

    Its workers do as they are told: whoever reaches such a port runs code as the curator, and reads records.
    """
    named = options.view_as(StandardOptions).runner
    if named != runner:
        raise ValueError(
            f'Expected one runner, got --runner={named} after -- beside runner={runner!r}. Give it before --.'
        )
    mode = options.view_as(DirectOptions).direct_running_mode
    if mode != 'in_memory':
        raise ValueError(
            f'Expected workers within this process, got direct_running_mode={mode!r}. They would be called '
            'over ports that are open to every network: whoever reaches one runs code as you and reads '
            'records. Leave the option out: --direct_num_workers=N gives N threads, and Flink processes.'
        )
    portable = options.view_as(PortableOptions)
    master = options.view_as(FlinkRunnerOptions).flink_master.strip()
    if portable.environment_type not in _ENVIRONMENTS or portable.job_endpoint == 'embed':
        raise ValueError(
            'Expected an engine that has its own workers, got '
            f'environment_type={portable.environment_type!r}, job_endpoint={portable.job_endpoint!r}. Beam '
            'would open workers of this machine to every network: whoever reaches one runs code as you and '
            'reads records. Give --environment_type=EXTERNAL and the job service of an engine; without one, '
            '--runner FnApiRunner.'
        )
    if runner == FLINK and master in MAGIC_HOST_NAMES:
        raise ValueError(
            f'Expected the cluster of FlinkRunner, got flink_master={master!r}. Beam would start one here '
            'and open its workers to every network. Give --flink_master=HOST:PORT, or use '
            'launch/flink/flink.sh run; on this machine alone, --runner FnApiRunner.'
        )
