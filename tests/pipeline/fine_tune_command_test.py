"""`dp-corpus fine-tune` as a user meets it, on the bundled model: an adapter, and texts of it later."""

import json
import pathlib
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from launch.demo import records as demo_records
from models.decoders import family
from models.finetuning import label_mix
from models.finetuning.adapter import AdapterCard
from models.privacy.accounting import subsampled
from models.privacy.report import PrivacyReport
from pipeline.asked import narrowed
from tests.command_line import in_this_process
from tests.one_model import one_model
from tests.samples import needs_model

TRAINING = (
    '--label-field', 'label', '--labels', 'Billing=Bills and payments,Delivery', '--records', '40',
    '--noise-multiplier', '1', '--delta', '1e-3', '--tuning-steps', '2', '--expected-batch-size', '4',
    '--lora-rank', '2', '--micro-batch-size', '4', '--max-prompt-tokens', '32', '--max-example-tokens', '8',
    '--record-id-field', 'id',
)  # fmt: skip
RANK = (TRAINING.index('--lora-rank'), TRAINING.index('--lora-rank') + 1)


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.fixture(scope='module')
def demo(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp('tuned') / 'records.jsonl'
    rows = demo_records.demo_records(40)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows), encoding='utf-8')
    return path


@pytest.mark.run
@needs_model
def test_it_leaves_an_adapter_that_generate_samples_from(demo: pathlib.Path) -> None:
    output, more = demo.parent / 'tuned', demo.parent / 'more'
    command = ('fine-tune', '--input', str(demo), '--output', str(output), *TRAINING)
    done = in_this_process(*command)
    assert done.returncode == 0, done.stderr
    assert '2 steps with noise multiplier 1, and no text yet.' in done.stderr
    shown = ' '.join(done.stdout.split())
    assert 'rank 2; no text is sampled yet' in shown and shown.endswith(f'Adapter and report: {output}')
    assert '0 examples' not in shown and 'Batches' not in shown
    assert sorted(path.name for path in output.iterdir()) == [
        'README.md', 'adapter', 'privacy_report.html', 'privacy_report.json'
    ]  # fmt: skip
    report = PrivacyReport.from_json((output / 'privacy_report.json').read_text())
    card = AdapterCard.from_json((output / 'adapter' / 'adapter.json').read_text())
    assert card.epsilon == report.epsilon == subsampled.epsilon_of_event(card.mechanism.event, 1e-3)
    assert card.labels == ('Billing=Bills and payments', 'Delivery') and card.run_id == 'tuned'
    restricted = json.loads((demo.parent / 'tuned.curator' / 'restricted_report.json').read_text())
    assert restricted['records_read'] == 40
    assert sum(group['true_count'] for group in restricted['true_counts_by_group']) > 0

    before = {path: path.read_bytes() for path in output.rglob('*') if path.is_file()}
    again = in_this_process(*command, '--json')
    assert (again.returncode, again.stderr) == (0, '')
    assert again.stdout == (output / 'privacy_report.json').read_text()
    assert before == {path: path.read_bytes() for path in output.rglob('*') if path.is_file()}

    # Another number of texts is another run: this one's stays what it is.
    other = in_this_process(
        'generate', '--method', 'fine-tune', *command[1:], '--examples-per-label', '1', '--quiet'
    )
    assert other.returncode == 2 and '--examples-per-label was 0 and is 1' in other.stderr

    done = in_this_process(
        'generate', '--adapter', str(output), '--output', str(more), '--examples-per-label', '3', '--quiet'
    )
    assert done.returncode == 0, done.stderr
    rows = [row for path in (more / 'data').iterdir() for row in pq.read_table(path).to_pylist()]
    assert sorted(row['label'] for row in rows) == ['Billing'] * 3 + ['Delivery'] * 3
    sampled = PrivacyReport.from_json((more / 'privacy_report.json').read_text())
    assert "the run 'tuned'" in sampled.data_accesses[0] and sampled.epsilon == report.epsilon

    # A file of settings as `start` writes it: what the adapter's card has stays in the file, the model too.
    (demo.parent / 'run.toml').write_text(
        f'method = "tune-refine"\ninput = "{demo}"\nlabel_field = "label"\nlabels = ["Billing", "Delivery"]\n'
        'records = 400\nepsilon = 3.0\nexamples = 4\ncorpus_description = "Notes."\nmodel = "gemma3-270m"\n'
        f'tuning_steps = 15\nembedder = "minilm"\noutput = "{demo.parent}/of-toml"\n'
    )
    arguments = ('--config', str(demo.parent / 'run.toml'), '--adapter', str(output), '--quiet')
    done = in_this_process('generate', *arguments)
    assert done.returncode == 0, done.stderr
    rows = [
        row
        for path in (demo.parent / 'of-toml' / 'data').iterdir()
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(rows) == 4 and {row['label'] for row in rows} == {'Billing', 'Delivery'}


@pytest.mark.run
@needs_model
def test_a_mix_that_is_counted_goes_with_the_adapter(demo: pathlib.Path) -> None:
    output, more = demo.parent / 'counted', demo.parent / 'counted-more'
    training = (*TRAINING, '--label-mix-rho', '0.5')
    done = in_this_process('fine-tune', '--input', str(demo), '--output', str(output), *training, '--quiet')
    assert done.returncode == 0, done.stderr
    card = AdapterCard.from_json((output / 'adapter' / 'adapter.json').read_text())
    assert card.label_counts is not None and card.mechanism.label_mix_rho == 0.5
    assert card.epsilon == subsampled.epsilon_of_event(card.mechanism.event, 1e-3)
    assert card.epsilon > subsampled.epsilon_of_event(card.mechanism.event_of_steps, 1e-3)
    sampling = ('generate', '--adapter', str(output), '--examples-per-label', '4', '--quiet')
    done = in_this_process(*sampling, '--output', str(more))
    assert done.returncode == 0, done.stderr
    rows = [row for path in (more / 'data').iterdir() for row in pq.read_table(path).to_pylist()]
    labels = [row['label'] for row in rows]
    found = labels.count('Billing'), labels.count('Delivery')
    assert found == label_mix.texts_of_counts(8, card.label_counts)
    done = in_this_process(*sampling, '--output', str(demo.parent / 'none'), '--label-mix-rho', '0.5')
    assert done.returncode == 2 and 'Expected no label_mix_rho' in done.stderr


@pytest.mark.run
@needs_model
def test_all_weights_are_trained_and_texts_are_sampled_with_them(demo: pathlib.Path) -> None:
    output, more = demo.parent / 'full', demo.parent / 'more-of-full'
    without_rank = tuple(part for place, part in enumerate(TRAINING) if place not in RANK)
    done = in_this_process(
        'fine-tune', '--full', '--input', str(demo), '--output', str(output), *without_rank
    )
    assert done.returncode == 0, done.stderr
    assert 'all weights; no text is sampled yet' in ' '.join(done.stdout.split())
    card = AdapterCard.from_json((output / 'adapter' / 'adapter.json').read_text())
    numbers = family.sizes_of('bundled').num_parameters
    size = (output / 'adapter' / 'adapter.safetensors').stat().st_size
    assert card.lora_rank is None and 0 < size - 4 * numbers < 100_000
    page = ' '.join((output / 'privacy_report.html').read_text().split())
    assert 'An adapter of all weights' in page and 'a difference that is added to the weights' in page
    readme = (output / 'README.md').read_text()
    assert 'An adapter of all weights, of the model bundled' in readme and 'lora' not in readme
    done = in_this_process(
        'generate', '--adapter', str(output), '--output', str(more), '--examples-per-label', '2', '--quiet'
    )
    assert done.returncode == 0, done.stderr
    rows = [row for path in (more / 'data').iterdir() for row in pq.read_table(path).to_pylist()]
    assert sorted(row['label'] for row in rows) == ['Billing'] * 2 + ['Delivery'] * 2
    done = in_this_process('fine-tune', '--full', '--input', str(demo), '--output', str(output), *TRAINING)
    assert done.returncode == 2 and 'leave --lora-rank out, or --full' in ' '.join(done.stderr.split())


@pytest.mark.parametrize(
    'flag', ['--top-p=0.5', '--top-k=4', '--temperature=1', '--examples-per-label=3', '--adapter=here',
             '--shards=2', '--label-mix=a=1', '--fixed=a=1', '--close-truncated',
             '--batch-size=8', '--clusters=2', '--method=fine-tune'],
)  # fmt: skip
def test_flags_of_sampling_and_of_votes_are_not_its_own(flag: str) -> None:
    done = in_this_process('fine-tune', '--input', 'a.jsonl', '--output', 'out', *TRAINING, flag)
    assert done.returncode == 2 and f'No such option: {flag.partition("=")[0]}' in done.stderr


def test_a_file_of_settings_may_hold_others_which_are_said(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / 'run.toml'
    arguments = ('fine-tune', '--config', str(file), '--input', str(tmp_path / 'none'), '--output', 'out')
    for settings, unused in (
        ('method = "fine-tune"', ''),
        ('top_p = 0.5', 'top_p is'),
        ('method = "evolve"\nrounds = 2\ncandidates = 3', 'rounds, candidates are'),
    ):
        file.write_text(f'records = 400\nepsilon = 3.0\n{settings}\n')
        done = in_this_process(*arguments)
        # The settings are read.
        assert done.returncode == 2 and 'Expected files for each pattern' in done.stderr
        said = f'WARNING: {file} stays as it is; {unused} not used here.'
        assert [record.message for record in caplog.records] == ([said] if unused else [])
        caplog.clear()


@pytest.mark.parametrize('given', [(), ('--input', 'a.jsonl'), ('--output', 'out')])
def test_it_takes_an_input_and_an_output(given: tuple[str, ...]) -> None:
    done = in_this_process('fine-tune', *TRAINING, *given)
    assert done.returncode == 2 and 'Give --input FILES --output FOLDER' in done.stderr


def test_its_help_says_what_comes_after() -> None:
    done = in_this_process('fine-tune', '--help')
    shown = ' '.join(done.stdout.split())
    assert done.returncode == 0 and 'generate --adapter' in shown and '--tuning-steps' in shown
    assert '--top-p' not in shown and '--examples-per-label' not in shown
    assert 'input' in narrowed.TRAINING and 'method' not in narrowed.TRAINING
