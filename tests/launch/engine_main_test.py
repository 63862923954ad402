"""One list of flags, ours and Beam's mixed, sorted into `dp-corpus generate FLAGS -- OPTIONS`."""

import os
import pathlib
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st

from launch import engine_main
from pipeline.asked.config import all_settings

ROOT = pathlib.Path(__file__).parents[2]
SWITCHES = engine_main.beam_switch_names()
FIELDS = sorted(name for name, setting in all_settings().items() if setting.type is not bool)
# Names that both sides know: `runner` goes through us, `labels` is told apart by its value.
SHARED = {'runner', 'labels'}


@pytest.mark.parametrize(
    'arguments, ours, beams',
    [
        (['--input=gs://b/x', '--project=p'], ['--input=gs://b/x'], ['--project=p']),
        (['--run_id=r', '--max-private-tokens=8'], ['--run-id=r', '--max-private-tokens=8'], []),
        (['--run_id', 'r', '--region', 'e'], ['--run-id=r'], ['--region=e']),
        (['--runner=DataflowRunner'], ['--runner=DataflowRunner'], []),
        (['--keep_rejected=true'], ['--keep-rejected'], []),
        (['--keep_rejected=False'], ['--no-keep-rejected'], []),
        (['--no_keep_rejected'], ['--no-keep-rejected'], []),
        (['--no-keep-rejected=false'], ['--keep-rejected'], []),
        (['--json', '--quiet=false', '--config=c.toml'], ['--json', '--config=c.toml'], []),
        (['--no_use_public_ips=true', '--no_auth'], [], ['--no_use_public_ips', '--no_auth']),
        (['--no_use_public_ips=false'], [], []),
        (['--labels=Billing=a bill,Delivery'], ['--labels=Billing=a bill,Delivery'], []),
        (['--labels={"team": "x"}'], [], ['--labels={"team": "x"}']),
        (['--labels=A', '--labels={}'], ['--labels=A'], ['--labels={}']),
        (['--experiments=a,b', '--experiments=c'], [], ['--experiments=a,b', '--experiments=c']),
        (['--service_options=a=type:x;topology:1x1'], [], ['--service_options=a=type:x;topology:1x1']),
        (['--', '--input=x', '--', '--project=p'], ['--input=x'], ['--project=p']),
        (['--accelerator=type:nvidia-l4;count:1'], ['--accelerator=type:nvidia-l4;count:1'], []),
        ([], [], []),
    ],
)  # fmt: skip
def test_where_flags_go(arguments: list[str], ours: list[str], beams: list[str]) -> None:
    assert engine_main.split_arguments(arguments, SWITCHES) == (ours, beams)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['stray', '--input=x'], 'stray'),
        (['--input=a', 'b'], 'belongs to none'),
        (['--input='], 'a value for input'),
        (['--input', '--output=x'], 'a value for input'),
        (['--keep_rejected=maybe'], 'true or false'),
        (['--no_use_public_ips=1'], 'true or false'),
    ],
)
def test_what_is_no_flag_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_main.split_arguments(arguments, SWITCHES)


def test_which_names_we_share_with_beam() -> None:
    """A new option of Beam that bears a name of ours would silently not reach Beam."""
    beams = set(PipelineOptions().get_all_options())
    ours = set(all_settings())
    assert (ours | engine_main.SWITCHES | engine_main.VALUE_FLAGS) & (beams | SWITCHES) == SHARED


def test_switches_of_beam() -> None:
    assert {'no_auth', 'no_save_main_session', 'no_use_public_ips', 'streaming'} <= SWITCHES
    assert not {'project', 'experiments', 'dry_run', 'sdk_location'} & SWITCHES


@given(
    st.dictionaries(st.sampled_from([name for name in FIELDS if name != 'labels']), st.text(min_size=1)),
    st.dictionaries(
        st.sampled_from(['project', 'region', 'sdk_location', 'unheard_of']), st.text(min_size=1)
    ),
    st.randoms(),
)
def test_nothing_is_lost_or_changed(ours: dict[str, str], beams: dict[str, str], order: object) -> None:
    mixed = [f'--{name}={value}' for name, value in (ours | beams).items()]
    order.shuffle(mixed)  # type: ignore[attr-defined]
    found, options = engine_main.split_arguments(mixed, SWITCHES)
    assert sorted(found) == sorted(f'--{name.replace("_", "-")}={value}' for name, value in ours.items())
    assert sorted(options) == sorted(f'--{name}={value}' for name, value in beams.items())


def launch(*arguments: str, folder: pathlib.Path) -> 'subprocess.CompletedProcess[str]':
    """As a template's launcher does: by the file's path, from elsewhere."""
    return subprocess.run(
        [sys.executable, str(ROOT / 'launch' / 'engine_main.py'), *arguments],
        capture_output=True, text=True, timeout=300, check=False, cwd=folder,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )  # fmt: skip


@pytest.mark.run
def test_it_ends_as_the_command_line_does(tmp_path: pathlib.Path) -> None:
    done = launch('--input=none.jsonl', '--output=out', '--project=p', folder=tmp_path)
    assert done.returncode == 2 and 'epsilon' in done.stderr
    done = launch('--keep_rejected=perhaps', folder=tmp_path)
    assert done.returncode == 2 and 'Error: Expected true or false' in done.stderr


@pytest.mark.run
def test_a_run(tmp_path: pathlib.Path) -> None:
    records = tmp_path / 'in.jsonl'
    records.write_text(''.join(f'{{"text": "Message {index} on a parcel."}}\n' for index in range(6)))
    done = launch(
        f'--input={records}', '--output=corpus', '--batches_per_label=1', '--batch_size=4', '--delta=1e-3',
        '--aggregate=mean', '--max_private_tokens=4', '--max_prompt_tokens=48', '--max_example_tokens=4',
        '--shards=1', '--runner=FnApiRunner', '--direct_num_workers=1', '--keep_rejected=true', '--quiet',
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'corpus' / 'privacy_report.json').exists()
    assert (tmp_path / 'corpus.curator' / 'rejected.jsonl').exists()
