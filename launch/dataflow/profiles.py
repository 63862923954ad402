"""Kinds of workers, and where they are, as Beam's options.

A profile says which accelerator the workers have. It has no effect on the guarantee.
"""

import dataclasses
import re
import types
from collections.abc import Mapping
from typing import Any, Literal

Jax = Literal['cpu', 'cuda12', 'tpu']
_IMAGE = re.compile(r'[a-z0-9][a-z0-9./_-]*(?::[0-9]+/[a-z0-9./_-]+)?(?::[\w.-]+|@sha256:[0-9a-f]{64})')
FOLDER = re.compile(r'gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[^\s,]*)?')
# One process and one thread for each worker: two would share the accelerator, and a TPU has one owner only.
# The options that hide elements from logs are in every job: pipeline/run/beam_options.py.
EXPERIMENTS = ('no_use_multiple_sdk_containers',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """One kind of accelerator, and how to ask Dataflow for it.

    Dataflow has two ways, and a job can use one of them. With right fitting, the step that decodes has a
    hint, and reading, grouping and writing run on workers without accelerators. With the service option,
    every worker has an accelerator. Only the service option gives TPUs, and GPUs that are part of a machine
    type.

    Attributes:
        jax: Variant of the image (`JAX` of the Dockerfile) whose JAX drives the accelerator.
        accelerator: The hint, as Dataflow writes it.
        worker_accelerator: Value of the service option, as Dataflow writes it.
        machine_type: Machine type of all workers; None: Dataflow chooses one that fits the hint.
        needs_zone: True if only some zones have the accelerator, so that the user must name one.
        disk_size_gb: Disk of each worker, in GB; it holds the image twice while that is unpacked.
    """

    jax: Jax
    accelerator: str | None = None
    worker_accelerator: str | None = None
    machine_type: str | None = None
    needs_zone: bool = False
    disk_size_gb: int = 100


# JAX for CUDA 12 needs a driver of 525 or newer: 5xx asks for one.
PROFILES: Mapping[str, Profile] = types.MappingProxyType({
    'nvidia-l4': Profile(jax='cuda12', accelerator='type:nvidia-l4;count:1;install-nvidia-driver:5xx'),
    'nvidia-a100': Profile(
        jax='cuda12',
        worker_accelerator='type:nvidia-tesla-a100;count:1;install-nvidia-driver:5xx',
        machine_type='a2-highgpu-1g',
    ),
    'nvidia-a100-80gb': Profile(
        jax='cuda12',
        worker_accelerator='type:nvidia-a100-80gb;count:1;install-nvidia-driver:5xx',
        machine_type='a2-ultragpu-1g',
    ),
    'nvidia-h100': Profile(
        jax='cuda12',
        worker_accelerator='type:nvidia-h100-80gb;count:1;install-nvidia-driver:5xx',
        machine_type='a3-highgpu-1g',
        needs_zone=True,
    ),
    'tpu-v5e': Profile(
        jax='tpu',
        worker_accelerator='type:tpu-v5-lite-podslice;topology:1x1',
        machine_type='ct5lp-hightpu-1t',
        needs_zone=True,
    ),
    # A machine has four chips, and a decoder shares its rows out among them.
    'tpu-v5p': Profile(
        jax='tpu',
        worker_accelerator='type:tpu-v5p-slice;topology:2x2x1',
        machine_type='ct5p-hightpu-4t',
        needs_zone=True,
    ),
    'tpu-v6e': Profile(
        jax='tpu',
        worker_accelerator='type:tpu-v6e-slice;topology:1x1',
        machine_type='ct6e-standard-1t',
        needs_zone=True,
    ),
})  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Project that pays for a run, and the region, image and folders of its workers.

    Attributes:
        zone: Zone of the workers, for accelerators that only some zones have.
        subnetwork: URL of the subnetwork of the workers. With it they have no public address.
        gbek: Secret that encrypts shuffled data, as --gbek of Beam takes it:
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
                'REPOSITORY/dp-corpus:TAG, as `launch/dataflow/dataflow.sh image` pushed it.'
            )
        if not FOLDER.fullmatch(self.temp_location):
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
    """The options of Beam for a run: name -> value, True for a switch; refuses a missing zone."""
    if profile.needs_zone and place.zone is None:
        raise ValueError(
            f'Expected a zone for {profile.worker_accelerator!r}, got zone=None. '
            'Give --zone with a zone of the region that has the accelerator.'
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
        # The image holds Beam and this project: a worker stages and installs nothing at its start.
        'sdk_location': 'container',
        'no_save_main_session': True,
        'number_of_worker_harness_threads': 1,
        'experiments': EXPERIMENTS,
        'gbek': place.gbek,
    }
    if profile.worker_accelerator is not None:
        options['dataflow_service_options'] = (f'worker_accelerator={profile.worker_accelerator}',)
        # A batch is one element of minutes, and no backlog to Dataflow: it would stay with one worker.
        options['num_workers'] = place.max_num_workers
    return {name: value for name, value in options.items() if value is not None and value is not False}
