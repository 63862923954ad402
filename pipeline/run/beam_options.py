"""Beam's options of a run, and those that no run may have."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, PipelineOptions

from pipeline.settings.job_config import JobConfig

# What shows elements, which are records here, in a runner's UI.
_SHOWS_ELEMENTS = frozenset({'enable_data_sampling', 'enable_always_on_exception_sampling'})
# Dataflow adds the second of them to every job by itself; workers obey this one first.
_SHOWS_NOTHING = 'disable_always_on_exception_sampling'


def beam_options(config: JobConfig, arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options from the runner and what followed after `--`.

    Samples of elements whose step failed are off, whatever started the run.

    Raises:
        ValueError: Beam does not know an option and would drop it with a warning, or an
            option shows records in the runner's UI.
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
    options = PipelineOptions([f'--runner={config.runner.runner}', *arguments])
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
    debug.add_experiment(_SHOWS_NOTHING)
    return options
