"""The commands that start a run on Dataflow: from this machine, and from the Flex Template."""

from collections.abc import Mapping, Sequence

from launch.dataflow.profiles import EXPERIMENTS, FOLDER, Place, Profile, beam_options


def generate_command(profile: Profile, place: Place, flags: Sequence[str]) -> list[str]:
    """The command that starts a run from this machine, with flags of `generate`, and waits for its end."""
    _check_flags(flags)
    hint = [f'--accelerator={profile.accelerator}'] if profile.accelerator is not None else []
    return [
        *('dp-corpus', 'generate', '--runner=DataflowRunner', *hint, *flags, '--'),
        *_as_arguments(beam_options(profile, place)),
    ]


def template_command(
    profile: Profile, place: Place, template: str, job_name: str, flags: Sequence[str]
) -> list[str]:
    """The command that starts a run from a Flex Template, a gs:// file, and does not wait for its end.

    Each flag is `--name=value`.
    """
    _check_flags(flags)
    if not FOLDER.fullmatch(template) or not template.endswith('.json'):
        raise ValueError(
            f'Expected a template file, got template={template!r}. '
            'Give gs://BUCKET/NAME.json, as `launch/dataflow/dataflow.sh template` wrote it.'
        )
    options = beam_options(profile, place)
    parameters = dict(_parameter(flag) for flag in flags)
    if profile.accelerator is not None:
        parameters['accelerator'] = profile.accelerator
    # gcloud has flags of its own for these options; Beam gets the others by their names.
    gcloud_flags = {
        'worker_zone': '--worker-zone',
        'temp_location': '--temp-location',
        'staging_location': '--staging-location',
        'service_account_email': '--service-account-email',
        'subnetwork': '--subnetwork',
        'max_num_workers': '--max-workers',
        'num_workers': '--num-workers',
        'machine_type': '--worker-machine-type',
    }
    command = ['gcloud', 'dataflow', 'flex-template', 'run', job_name, f'--project={place.project}']
    command += [f'--region={place.region}', f'--template-file-gcs-location={template}']
    command += [f'{flag}={options[name]}' for name, flag in gcloud_flags.items() if name in options]
    if 'no_use_public_ips' in options:
        command.append('--disable-public-ips')
    command.append(f'--additional-experiments={",".join(EXPERIMENTS)}')
    taken = {*gcloud_flags, 'project', 'region', 'no_use_public_ips', 'experiments'}
    rest = {name: _as_text(value) for name, value in options.items() if name not in taken}
    command.append(f'--additional-pipeline-options={_dictionary(rest)}')
    command.append(f'--parameters={_dictionary(parameters)}')
    return command


def _check_flags(flags: Sequence[str]) -> None:
    """Refuses flags that the profile decides: of two values for a setting one would be lost."""
    decided = {'runner', 'accelerator'}
    names = {flag.removeprefix('--').partition('=')[0].replace('-', '_') for flag in flags}
    if repeated := sorted(decided & names):
        raise ValueError(
            f'Expected no flag that the profile decides, got flags={repeated}. Leave them out, or call '
            'dp-corpus generate yourself: --dry-run shows the whole command.'
        )
    if '--' in flags:
        raise ValueError(
            "Expected only flags of dp-corpus generate, got a second '--'. Leave Beam's options out: the "
            'profile decides them. --dry-run shows the whole command, to which you can add more.'
        )


def _parameter(flag: str) -> tuple[str, str]:
    """`--run-id=x` -> (run_id, x)."""
    name, equals, value = flag.removeprefix('--').partition('=')
    if not flag.startswith('--') or not equals:
        raise ValueError(
            f'Expected --name=value, got flag={flag!r}. A template takes each flag with a value, and so each '
            'switch, too: --keep-rejected=true.'
        )
    return name.replace('-', '_'), value


def _dictionary(entries: Mapping[str, str]) -> str:
    """Names and values as gcloud takes them, with a separator that no value contains."""
    text = ''.join(f'{name}={value}' for name, value in entries.items())
    separator = next((mark for mark in ('~', '|', '@', '#', '%', '!') if mark not in text), None)
    if separator is None:
        raise ValueError(
            f'Expected values that do not contain all of ~|@#%!, got names={list(entries)}, which do. '
            'Write one of the values without one of these characters.'
        )
    return f'^{separator}^{separator.join(f"{name}={value}" for name, value in entries.items())}'


def _as_text(value: str | int | bool | tuple[str, ...]) -> str:
    if value is True:
        return 'true'
    return ','.join(value) if isinstance(value, tuple) else str(value)


def _as_arguments(options: Mapping[str, str | int | bool | tuple[str, ...]]) -> list[str]:
    return [
        f'--{name}' if value is True else f'--{name}={_as_text(value)}' for name, value in options.items()
    ]
