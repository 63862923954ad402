"""Runs on Dataflow: what a worker is, the command that starts a run, and the template's metadata.

`launch/dataflow.sh` is the way in; `launch/dataflow.md` tells what must be there before. A
profile says what kind of worker decodes, and nothing that touches the guarantee.
"""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from pipeline.config import JobConfig, setting_types

EXIT_USAGE = 2
Jax = Literal['cpu', 'cuda12', 'tpu']
_IMAGE = re.compile(r'[a-z0-9][a-z0-9./_-]*(?::[0-9]+/[a-z0-9./_-]+)?(?::[\w.-]+|@sha256:[0-9a-f]{64})')
_FOLDER = re.compile(r'gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[^\s,]*)?')
# One process and one thread: two would share one accelerator, and a TPU has one owner only.
# And no sample of an element whose step failed: elements are records here.
EXPERIMENTS = ('no_use_multiple_sdk_containers', 'disable_always_on_exception_sampling')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """One kind of accelerator, and how Dataflow is asked for it.

    Dataflow has two ways, never both in one job. Right fitting puts a hint on the step that
    decodes, so that reading, grouping and writing run on a pool without accelerators. The
    service option gives every worker one; it is the only way to TPUs, and to GPUs that come
    with their machine type.

    Attributes:
        jax: The image's variant (`JAX` of the Dockerfile) whose JAX drives the accelerator.
        accelerator: The hint, in Dataflow's words.
        worker_accelerator: The service option's value, in the same words.
        machine_type: Of all workers; None lets Dataflow choose one that fits the hint.
        needs_zone: Whether the accelerator exists in some zones only, so that the user names one.
        disk_size_gb: Of each worker: the image, and weights in it, twice while it is unpacked.
    """

    jax: Jax
    accelerator: str | None = None
    worker_accelerator: str | None = None
    machine_type: str | None = None
    needs_zone: bool = False
    disk_size_gb: int = 100

    def __post_init__(self) -> None:
        if (self.accelerator is None) == (self.worker_accelerator is None):
            raise ValueError(
                'Expected either accelerator or worker_accelerator, got '
                f'accelerator={self.accelerator!r}, worker_accelerator={self.worker_accelerator!r}. '
                'Dataflow takes a hint on one step or a service option for all workers.'
            )
        if self.worker_accelerator is not None and self.machine_type is None:
            raise ValueError(
                f'Expected a machine_type with worker_accelerator={self.worker_accelerator!r}, got None. '
                'Name the type that carries it.'
            )


# JAX for CUDA 12 needs a driver of 525 or newer: 5xx asks for one.
PROFILES: Mapping[str, Profile] = types.MappingProxyType({
    'nvidia-l4': Profile(jax='cuda12', accelerator='type:nvidia-l4;count:1;install-nvidia-driver:5xx'),
    'nvidia-a100': Profile(
        jax='cuda12',
        worker_accelerator='type:nvidia-tesla-a100;count:1;install-nvidia-driver:5xx',
        machine_type='a2-highgpu-1g',
    ),
    'tpu-v5e': Profile(
        jax='tpu',
        worker_accelerator='type:tpu-v5-lite-podslice;topology:1x1',
        machine_type='ct5lp-hightpu-1t',
        needs_zone=True,
    ),
})  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run's workers are, and who pays for them.

    Attributes:
        project: The project's id.
        region: Dataflow's region, such as us-central1.
        image: The worker image, with a tag or a digest.
        temp_location: A gs:// folder for Dataflow's staged files.
        zone: Of the workers, for accelerators that few zones have.
        max_num_workers: Most workers at once; None leaves it to Dataflow.
        service_account: E-mail of the workers' account; None for the project's default.
        subnetwork: URL of the workers' subnetwork. With it they have no public address.
        gbek: Secret that encrypts what is shuffled, as Beam's --gbek takes it:
            `type:gcpsecret;version_name:projects/PROJECT/secrets/NAME/versions/1`.
    """

    project: str
    region: str
    image: str
    temp_location: str
    zone: str | None = None
    max_num_workers: int | None = None
    service_account: str | None = None
    subnetwork: str | None = None
    gbek: str | None = None

    def __post_init__(self) -> None:
        for name in ('project', 'region'):
            if not getattr(self, name):
                raise ValueError(f'Expected a {name}, got {name}={getattr(self, name)!r}. Give --{name}.')
        if not _IMAGE.fullmatch(self.image):
            raise ValueError(
                f'Expected an image with a tag or a digest, got image={self.image!r}. Give '
                'REPOSITORY/dp-corpus:TAG, as `launch/dataflow.sh image` pushed it.'
            )
        if not _FOLDER.fullmatch(self.temp_location):
            raise ValueError(
                f'Expected a gs:// folder, got temp_location={self.temp_location!r}. '
                'Give --temp-location gs://BUCKET/tmp.'
            )
        if self.max_num_workers is not None and self.max_num_workers < 1:
            raise ValueError(
                f'Expected max_num_workers >= 1, got max_num_workers={self.max_num_workers}. '
                'Give a positive whole number, or leave it out.'
            )


def beam_options(profile: Profile, place: Place) -> dict[str, str | int | bool | tuple[str, ...]]:
    """Beam's options of a run: name -> value, True for a switch.

    Raises:
        ValueError: The profile needs a zone and the place names none.
    """
    if profile.needs_zone and place.zone is None:
        raise ValueError(
            f'Expected a zone for {profile.worker_accelerator!r}, got zone=None. '
            'Give --zone, one that has the accelerator and lies in the region.'
        )
    options: dict[str, Any] = {
        'project': place.project,
        'region': place.region,
        'worker_zone': place.zone,
        'temp_location': place.temp_location,
        'staging_location': place.temp_location,
        'service_account_email': place.service_account,
        'subnetwork': place.subnetwork,
        'no_use_public_ips': place.subnetwork is not None,
        'max_num_workers': place.max_num_workers,
        'machine_type': profile.machine_type,
        'disk_size_gb': profile.disk_size_gb,
        'sdk_container_image': place.image,
        # The image holds Beam and this project: nothing is staged, and nothing installed at a start.
        'sdk_location': 'container',
        'no_save_main_session': True,
        'number_of_worker_harness_threads': 1,
        'experiments': EXPERIMENTS,
        'gbek': place.gbek,
    }
    if profile.worker_accelerator is not None:
        options['dataflow_service_options'] = (f'worker_accelerator={profile.worker_accelerator}',)
    return {name: value for name, value in options.items() if value is not None and value is not False}


def generate_command(profile: Profile, place: Place, flags: Sequence[str]) -> list[str]:
    """The command that starts a run from this machine, which waits for its end.

    Args:
        profile: What decodes.
        place: Where.
        flags: Flags of `dp-corpus generate`.

    Raises:
        ValueError: A flag that the profile or the place decides, or a missing zone.
    """
    _check_flags(flags)
    hint = [f'--accelerator={profile.accelerator}'] if profile.accelerator is not None else []
    return [
        *('dp-corpus', 'generate', '--runner=DataflowRunner', *hint, *flags, '--'),
        *_as_arguments(beam_options(profile, place)),
    ]


def template_command(
    profile: Profile, place: Place, template: str, job_name: str, flags: Sequence[str]
) -> list[str]:
    """The command that starts a run from a Flex Template, and does not wait for it.

    Args:
        profile: What decodes.
        place: Where.
        template: The template's file, gs://...
        job_name: Dataflow's name for the job.
        flags: Flags of `dp-corpus generate`, each as `--name=value`.

    Raises:
        ValueError: A flag that the profile or the place decides, one without a value, a template
            that lies elsewhere, or a missing zone.
    """
    _check_flags(flags)
    if not _FOLDER.fullmatch(template) or not template.endswith('.json'):
        raise ValueError(
            f'Expected a template file, got template={template!r}. '
            'Give gs://BUCKET/NAME.json, as `launch/dataflow.sh template` wrote it.'
        )
    options = beam_options(profile, place)
    parameters = dict(_parameter(flag) for flag in flags)
    if profile.accelerator is not None:
        parameters['accelerator'] = profile.accelerator
    # The launcher has settings of its own for these; Beam gets the others by name.
    own = {
        'worker_zone': '--worker-zone',
        'temp_location': '--temp-location',
        'staging_location': '--staging-location',
        'service_account_email': '--service-account-email',
        'subnetwork': '--subnetwork',
        'max_num_workers': '--max-workers',
        'machine_type': '--worker-machine-type',
    }
    command = ['gcloud', 'dataflow', 'flex-template', 'run', job_name, f'--project={place.project}']
    command += [f'--region={place.region}', f'--template-file-gcs-location={template}']
    command += [f'{flag}={options[name]}' for name, flag in own.items() if name in options]
    if 'no_use_public_ips' in options:
        command.append('--disable-public-ips')
    command.append(f'--additional-experiments={",".join(EXPERIMENTS)}')
    taken = {*own, 'project', 'region', 'no_use_public_ips', 'experiments'}
    rest = {name: _as_text(value) for name, value in options.items() if name not in taken}
    command.append(f'--additional-pipeline-options={_dictionary(rest)}')
    command.append(f'--parameters={_dictionary(parameters)}')
    return command


def _check_flags(flags: Sequence[str]) -> None:
    """Refuses what a profile decides: two sources for one setting would hide the other."""
    decided = {'runner', 'accelerator'}
    names = {flag.removeprefix('--').partition('=')[0].replace('-', '_') for flag in flags}
    if found := sorted(decided & names):
        raise ValueError(
            f'Expected no flag that the profile decides, got flags={found}. Leave them out, or call '
            'dp-corpus generate yourself: --dry-run shows the whole command.'
        )
    if '--' in flags:
        raise ValueError(
            "Expected flags of dp-corpus generate only, got a second '--'. Beam's options follow from "
            'the profile; --dry-run shows the whole command, to which more can be added.'
        )


def _parameter(flag: str) -> tuple[str, str]:
    """`--run-id=x` -> (run_id, x)."""
    name, equals, value = flag.removeprefix('--').partition('=')
    if not flag.startswith('--') or not equals:
        raise ValueError(
            f'Expected --name=value, got flag={flag!r}. A template takes every flag with its value, a switch '
            'too: --keep-rejected=true.'
        )
    return name.replace('-', '_'), value


def _dictionary(entries: Mapping[str, str]) -> str:
    """Names and values as gcloud takes them, with a separator that occurs in none of them."""
    text = ''.join(f'{name}={value}' for name, value in entries.items())
    separator = next((mark for mark in ('~', '|', '@', '#', '%', '!') if mark not in text), None)
    if separator is None:
        raise ValueError(
            f'Expected values without one of ~|@#%!, got names={list(entries)} that use them all. '
            'Write one of them differently.'
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


# --- The Flex Template's metadata ------------------------------------------------

_REGEXES = {
    'input': r'^gs://\S.*$',
    'output': r'^gs://[^/]+/.+$',
    'work_dir': r'^gs://[^/]+/.+$',
    'run_id': r'^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$',
    'runner': '^DataflowRunner$',
}
_TYPE_REGEXES = {
    int: r'^[+-]?[0-9]+$',
    float: r'^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$',
    bool: '^(true|false)$',
}


def template_metadata() -> dict[str, Any]:
    """The metadata of the Flex Template: one parameter for each field of `JobConfig`.

    Dataflow checks a request against it before anything is started.
    """
    hints = setting_types(JobConfig)
    return {
        'name': 'dp-corpus',
        'description': 'Differentially private synthetic text from records that may not be shared.',
        'parameters': [
            _parameter_metadata(field, hints[field.name]) for field in dataclasses.fields(JobConfig)
        ],
    }


def _parameter_metadata(field: 'dataclasses.Field[Any]', hint: Any) -> dict[str, Any]:
    help_text = field.metadata['help']
    if field.default not in (None, (), dataclasses.MISSING, False):
        help_text += f' Default: {field.default}.'
    parameter: dict[str, Any] = {
        'name': field.name,
        'label': field.name.replace('_', ' ').capitalize(),
        'helpText': help_text,
        # A plan needs neither of them, a run both.
        'isOptional': field.name not in ('input', 'output'),
    }
    regex = _REGEXES.get(field.name) or _regex_of(hint)
    if regex is not None:
        parameter['regexes'] = [regex]
    return parameter


def _regex_of(hint: Any) -> str | None:
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    hint = options[0] if isinstance(hint, types.UnionType) else hint
    if typing.get_origin(hint) is Literal:
        return f'^({"|".join(re.escape(str(option)) for option in typing.get_args(hint))})$'
    return _TYPE_REGEXES.get(hint)


# --- Commands --------------------------------------------------------------------

app = typer.Typer(
    help='Runs on Dataflow: see launch/dataflow.md.', no_args_is_help=True, add_completion=False
)
ProfileName = Annotated[str, typer.Argument(metavar='PROFILE', help=f'{", ".join(PROFILES)}.')]
Flags = Annotated[
    list[str] | None, typer.Argument(metavar='-- FLAGS', help='Flags of dp-corpus generate, after a bare --.')
]
ProjectFlag = Annotated[str, typer.Option('--project', help="The project's id.")]
RegionFlag = Annotated[str, typer.Option('--region', help="Dataflow's region.")]
ImageFlag = Annotated[str, typer.Option('--image', help='The worker image, with a tag or a digest.')]
TempFlag = Annotated[str, typer.Option('--temp-location', help="gs:// folder for Dataflow's staged files.")]
ZoneFlag = Annotated[str | None, typer.Option('--zone', help='Zone of the workers.')]
WorkersFlag = Annotated[int | None, typer.Option('--max-num-workers', help='Most workers at once.')]
AccountFlag = Annotated[str | None, typer.Option('--service-account', help="E-mail of the workers' account.")]
SubnetworkFlag = Annotated[
    str | None, typer.Option('--subnetwork', help='URL; with it workers have no public address.')
]
GbekFlag = Annotated[
    str | None, typer.Option('--gbek', help="Secret that encrypts what is shuffled: Beam's --gbek.")
]
DryRunFlag = Annotated[bool, typer.Option('--dry-run', help='Show the command and stop.')]


@app.command()
def run(
    profile: ProfileName,
    project: ProjectFlag,
    region: RegionFlag,
    image: ImageFlag,
    temp_location: TempFlag,
    flags: Flags = None,
    zone: ZoneFlag = None,
    max_num_workers: WorkersFlag = None,
    service_account: AccountFlag = None,
    subnetwork: SubnetworkFlag = None,
    gbek: GbekFlag = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Start a run from this machine and wait for its end."""
    place = Place(
        project=project,
        region=region,
        image=image,
        temp_location=temp_location,
        zone=zone,
        max_num_workers=max_num_workers,
        service_account=service_account,
        subnetwork=subnetwork,
        gbek=gbek,
    )
    _show_or_run(generate_command(_profile(profile), place, flags or ()), dry_run=dry_run)


@app.command()
def run_template(
    profile: ProfileName,
    template: Annotated[str, typer.Option('--template', help="The template's file, gs://...")],
    job_name: Annotated[str, typer.Option('--job-name', help="Dataflow's name for the job.")],
    project: ProjectFlag,
    region: RegionFlag,
    image: ImageFlag,
    temp_location: TempFlag,
    flags: Flags = None,
    zone: ZoneFlag = None,
    max_num_workers: WorkersFlag = None,
    service_account: AccountFlag = None,
    subnetwork: SubnetworkFlag = None,
    gbek: GbekFlag = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Start a run from a Flex Template; returns once Dataflow has taken it."""
    place = Place(
        project=project,
        region=region,
        image=image,
        temp_location=temp_location,
        zone=zone,
        max_num_workers=max_num_workers,
        service_account=service_account,
        subnetwork=subnetwork,
        gbek=gbek,
    )
    command = template_command(_profile(profile), place, template, job_name, flags or ())
    _show_or_run(command, dry_run=dry_run)


@app.command()
def metadata() -> None:
    """Print the Flex Template's metadata, for launch/template_metadata.json."""
    print(json.dumps(template_metadata(), indent=2, ensure_ascii=False))


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise ValueError(f'Expected a profile among {", ".join(PROFILES)}, got profile={name!r}. Choose one.')
    return PROFILES[name]


def _show_or_run(command: Sequence[str], *, dry_run: bool) -> None:
    if dry_run:
        print(shlex.join(command))
        return
    print(shlex.join(command), file=sys.stderr)
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def main() -> None:
    """Runs the command line; errors of the request print one line and exit with 2."""
    try:
        app()
    except (ValueError, FileNotFoundError) as error:
        print(f'Error: {error}', file=sys.stderr)
        sys.exit(EXIT_USAGE)


if __name__ == '__main__':
    main()
