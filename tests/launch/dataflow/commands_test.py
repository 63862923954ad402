"""The commands of profiles and places; every option is one that Beam or gcloud knows."""

import dataclasses
import pathlib
from typing import Any

import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions

from launch.dataflow import commands, profiles

ROOT = pathlib.Path(__file__).parents[3]
IMAGE = 'images.example.org/a-project/dp-corpus:1'
PLACE = profiles.Place(
    project='a-project', region='us-central1', image=IMAGE, temp_location='gs://a-bucket/tmp'
)


@pytest.mark.parametrize('name', profiles.PROFILES)
def test_beam_knows_every_option(name: str) -> None:
    place = dataclasses.replace(
        PLACE, zone='us-central1-a', subnetwork='regions/us-central1/subnetworks/x', max_num_workers=2,
        service_account='w@a-project.iam.gserviceaccount.com',
        gbek='type:gcpsecret;version_name:projects/a-project/secrets/shuffle/versions/1',
    )  # fmt: skip
    command = commands.generate_command(profiles.PROFILES[name], place, ['--input=x', '--output=y'])
    options = PipelineOptions(command[command.index('--') + 1 :])
    known = options.get_all_options(retain_unknown_options=False)
    assert options.get_all_options(retain_unknown_options=True).keys() == known.keys()
    assert known['use_public_ips'] is False and known['service_account_email'].startswith('w@')
    assert options.view_as(DebugOptions).experiments == list(profiles.EXPERIMENTS)
    assert known['gbek'] == place.gbek
    # All accelerators at once, where every worker has one.
    assert known['num_workers'] == (None if name == 'nvidia-l4' else 2)


def test_the_template_is_started_with_the_options_of_a_run() -> None:
    place = dataclasses.replace(PLACE, zone='us-west4-a', subnetwork='s', max_num_workers=4)
    profile = profiles.PROFILES['tpu-v5e']
    given = ['--input=gs://a-bucket/a.jsonl,gs://a-bucket/b.jsonl', '--labels=Billing,Delivery']
    command = commands.template_command(profile, place, 'gs://a-bucket/dp-corpus.json', 'one', given)
    assert command[:5] == ['gcloud', 'dataflow', 'flex-template', 'run', 'one']
    told = dict(argument.removeprefix('--').partition('=')[::2] for argument in command[5:])
    parameters = told['parameters'].removeprefix('^~^').split('~')
    assert parameters == [argument.removeprefix('--') for argument in given]
    options = profiles.beam_options(profile, place)
    rest = dict(
        entry.partition('=')[::2]
        for entry in told['additional-pipeline-options'].removeprefix('^~^').split('~')
    )
    assert rest['sdk_container_image'] == IMAGE and rest['number_of_worker_harness_threads'] == '1'
    assert rest['dataflow_service_options'] == 'worker_accelerator=type:tpu-v5-lite-podslice;topology:1x1'
    # No option of a run is lost on the way: each is either the launcher's or Beam's.
    flags_of_gcloud = {
        'project', 'region', 'worker_zone', 'temp_location', 'staging_location', 'subnetwork',
        'no_use_public_ips', 'max_num_workers', 'num_workers', 'machine_type', 'experiments',
    }  # fmt: skip
    assert set(rest) | flags_of_gcloud == set(options) and not set(rest) & flags_of_gcloud
    assert told['worker-zone'] == 'us-west4-a' and told['max-workers'] == told['num-workers'] == '4'
    assert told['additional-experiments'].split(',') == list(profiles.EXPERIMENTS)


def test_a_separator_that_occurs_in_no_value() -> None:
    assert commands._dictionary({'a': '1~2', 'b': '3'}) == '^|^a=1~2|b=3'
    with pytest.raises(ValueError, match='separator|without one of'):
        commands._dictionary({'a': '~|@#%!'})


@pytest.mark.parametrize(
    'wrong, message',
    [
        ({'image': 'dp-corpus'}, 'image with a tag'),
        ({'image': 'a/b:tag with space'}, 'image with a tag'),
        ({'temp_location': '/tmp'}, 'gs:// folder'),
        ({'temp_location': 'gs://x/tmp'}, 'gs:// folder'),
        ({'max_num_workers': 0}, 'max_num_workers >= 1'),
    ],
)
def test_a_wrong_place_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PLACE, **wrong)


@pytest.mark.parametrize('flag', ['--runner=X', '--accelerator=y', '--'])
def test_flags_that_a_profile_decides_are_refused(flag: str) -> None:
    with pytest.raises(ValueError, match='Expected'):
        commands.generate_command(profiles.PROFILES['nvidia-l4'], PLACE, ['--input=x', flag])


def test_a_tpu_needs_a_zone() -> None:
    with pytest.raises(ValueError, match='zone'):
        commands.generate_command(profiles.PROFILES['tpu-v5e'], PLACE, [])


def test_every_profile_has_an_image() -> None:
    dockerfile = (ROOT / 'launch' / 'image' / 'Dockerfile').read_text()
    for profile in profiles.PROFILES.values():
        assert f'FROM common AS {profile.jax}\n' in dockerfile
