"""Runs on Dataflow: the command line behind `launch/dataflow/dataflow.sh`.

docs/deploying/dataflow.md says what must be there before.
"""

import json
import shlex
import subprocess
import sys
from typing import Annotated

import typer

from launch.dataflow.commands import generate_command, template_command
from launch.dataflow.profiles import PROFILES, Place
from launch.dataflow.template import template_metadata

EXIT_USAGE = 2

# After `\b` lines stay as they are, up to the next empty line.
HELP = """Run dp-corpus on Dataflow; --dry-run shows the command and does not run it:

\b
    launch/dataflow/dataflow.sh nvidia-l4 --dry-run --project my-project \\
        --region us-central1 --image images.example.org/dp-corpus:1 \\
        --temp-location gs://my-bucket/tmp -- \\
        --config launch/demo/gemma.toml \\
        --input gs://my-bucket/records.jsonl --output gs://my-bucket/corpus

docs/deploying/dataflow.md says what must be there before."""

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False)


@app.command()
def run(
    profile: Annotated[
        str, typer.Argument(metavar='PROFILE', help=f'The accelerator: {", ".join(PROFILES)}.')
    ],
    project: Annotated[str, typer.Option(help='Id of the project.')],
    region: Annotated[str, typer.Option(help='Region of Dataflow.')],
    image: Annotated[str, typer.Option(help='The worker image, with a tag or a digest.')],
    temp_location: Annotated[str, typer.Option(help="gs:// folder for Dataflow's staged files.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(metavar='-- FLAGS', help="Flags of dp-corpus generate, after a '--'."),
    ] = None,
    zone: Annotated[str | None, typer.Option(help='Zone of the workers.')] = None,
    max_num_workers: Annotated[
        int | None,
        typer.Option(
            help='Largest number of workers; with that many it starts, where each has an accelerator.'
        ),
    ] = None,
    service_account: Annotated[
        str | None, typer.Option(help='E-mail address of the account of the workers.')
    ] = None,
    subnetwork: Annotated[
        str | None,
        typer.Option(help='URL of a subnetwork. With it workers have no public address.'),
    ] = None,
    gbek: Annotated[
        str | None, typer.Option(help='Secret that encrypts shuffled data, as --gbek of Beam takes it.')
    ] = None,
    template: Annotated[
        str | None, typer.Option(help='File of the Flex Template that starts the run, gs://...')
    ] = None,
    job_name: Annotated[
        str | None, typer.Option(help='Name of the job in Dataflow, with --template.')
    ] = None,
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Show the command and do not run it.')] = False,
) -> None:
    """Start a run from this machine and wait for its end; from a template, until Dataflow accepts it."""
    if profile not in PROFILES:
        raise ValueError(
            f'Expected a profile among {", ".join(PROFILES)}, got profile={profile!r}. Choose one.'
        )
    if (template is None) != (job_name is None):
        raise ValueError(
            f'Expected --template and --job-name together, got template={template!r}, job_name={job_name!r}. '
            'Give both, or none to start the run from this machine.'
        )
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
    if template is None or job_name is None:
        command = generate_command(PROFILES[profile], place, flags or ())
    else:
        command = template_command(PROFILES[profile], place, template, job_name, flags or ())
    if dry_run:
        print(shlex.join(command))
        return
    print(shlex.join(command), file=sys.stderr)
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command()
def metadata() -> None:
    """Print the metadata of the Flex Template, for launch/dataflow/template_metadata.json."""
    print(json.dumps(template_metadata(), indent=2, ensure_ascii=False))


def main() -> None:
    """Runs the command line; a wrong request ends with one line and code 2."""
    try:
        app()
    except (ValueError, FileNotFoundError) as error:
        print(f'Error: {error}', file=sys.stderr)
        sys.exit(EXIT_USAGE)


if __name__ == '__main__':
    main()
