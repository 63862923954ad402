"""The audits from a config to a verdict, on the bundled model, and who may see what of it."""

import csv
import io
import json
import pathlib
import stat
from collections.abc import Iterator

import pytest
import rich.console

from models.audits import replay
from models.bundled import FOLDER as BUNDLED
from models.generate.batch import BatchGenerator
from models.privacy import accounting, report
from models.privacy.randomness import RunKey
from models.records import Batch
from models.reference import is_complete
from pipeline.config import job_config
from pipeline.methods.predict import audit, mechanism
from pipeline.settings.job_config import JobConfig
from tests import oracles
from tests.one_model import one_model

pytestmark = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)

NEWS = pathlib.Path(__file__).parents[5] / 'shared' / 'data' / 'agnews' / 'train_head.csv'
CANARY = 'Zyxquortle'


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.fixture
def config(tmp_path: pathlib.Path) -> JobConfig:
    """60 records of two labels."""
    with (tmp_path / 'records.csv').open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['id', 'user', 'label', 'text'])
        for number in range(60):
            text = f'{number} times {CANARY} asked about the {"bill" if number % 2 else "parcel"}.'
            writer.writerow([number, f'user {number % 25}', number % 2, text])
    return job_config(
        input=str(tmp_path / 'records.csv'), label_field='label', labels=('0=Delivery', '1=Billing'),
        batch_size=15, temperature=1.5, aggregate='median', max_private_tokens=6, max_prompt_tokens=60,
        delta=1e-5, batches_per_label=2, max_example_tokens=8,
    )  # fmt: skip


def with_settings(config: JobConfig, **changes: object) -> JobConfig:
    return config.replace(**changes)


def shown(result: audit.LeaveOneOutAudit | audit.ReconstructionAudit) -> str:
    console = rich.console.Console(file=io.StringIO(), width=140)
    if isinstance(result, audit.LeaveOneOutAudit):
        audit.render_leave_one_out(result, console)
    else:
        audit.render_reconstruction(result, console)
    return console.file.getvalue()


@pytest.mark.parametrize('aggregate', ['mean', 'median', 'difference'])
def test_the_job_passes_and_the_broken_job_fails(config: JobConfig, aggregate: str) -> None:
    """One batch of each label, and of the difference of each round; every context once; both directions."""
    config = with_settings(config, aggregate=aggregate, accounting='worst-case')
    result = audit.leave_one_out(config, outsiders=3)
    rounds = 2 if aggregate == 'difference' else 1
    assert result.ok and [batch.label for batch in result.batches] == ['0', '1'] * rounds
    names = [batch.batch_id for batch in result.batches]
    assert len(set(names)) == 2 * rounds
    if rounds == 1:
        assert names == ['0000-000000', '0001-000000']
    for batch in result.batches:
        assert batch.contexts == len(batch.removed) > 5 and len(batch.added) == 3
        assert batch.private_tokens == 6 and 0 < batch.empirical_epsilon < batch.bound
    assert (result.epsilon is None) == (aggregate == 'median')
    assert 'within' in shown(result) and 'VIOLATION' not in shown(result)
    for sabotage in ('no-clipping', 'paste'):
        broken = audit.leave_one_out(config, outsiders=0, sabotage=sabotage)
        assert not broken.ok and 'VIOLATION' in shown(broken), sabotage
        assert json.loads(broken.to_json())['ok'] is False


def test_individual_accounting_is_audited_by_what_contexts_paid(
    config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of 60 tokens by its first 12, with B cut as they are; and two ways to break it."""
    monkeypatch.setattr(audit, 'MOST_PRIVATE_TOKENS', 12)
    config = with_settings(
        config, label_field=None, labels=(), batches_per_label=4, aggregate='difference',
        accounting='individual', max_private_tokens=None, max_batch_tokens=60, context_budget=0.02,
        clip_bound=1.0, shift_bound=0.5, omega=24.0, temperature=1.0, public_top_k=200,
    )  # fmt: skip
    result = audit.leave_one_out(config, outsiders=3)
    assert result.ok and 'VIOLATION' not in shown(result) and 'Paid of B' in shown(result)
    for batch in result.batches:
        assert batch.private_tokens == 12
        assert len(batch.payments) == batch.contexts + 3
        assert {payment.most for payment in batch.payments} == {0.02 / 5}
        assert all(0 < payment.paid <= payment.most for payment in batch.payments)
        # Rounding of a vote of a thousandth of a nat is small against what is paid.
        assert all(payment.rounding < 0.1 * payment.most for payment in batch.payments)
        assert audit.most_given(batch) > 0.1
    whole = mechanism.params(config)
    assert (
        result.epsilon == pytest.approx(accounting.epsilon_from_rho(0.02, 1e-5, largest_order=24.0))
        and whole.is_individual
    )
    document = json.loads(result.to_json())['batches'][0]['payments'][0]
    assert document['ok'] is True and document['paid'] == result.batches[0].payments[0].paid
    for sabotage in ('no-filter', 'half-price'):
        broken = audit.leave_one_out(config, outsiders=0, sabotage=sabotage)
        assert not broken.ok and 'VIOLATION' in shown(broken), sabotage
        assert json.loads(broken.to_json())['ok'] is False


def test_the_sparse_vector_is_audited_with_its_flags(config: JobConfig) -> None:
    config = with_settings(
        config, aggregate='mean', threshold=1.0, threshold_noise_scale=0.4, max_private_tokens=4
    )
    result = audit.leave_one_out(config)
    assert result.ok and sum(batch.public_tokens for batch in result.batches) > 0


def test_a_reference_is_audited_with_its_texts(
    config: JobConfig, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'public.jsonl').write_text('{"text": "A parcel."}\n{"text": "Two parcels."}\n')
    seen: list[tuple[str | None, tuple[str, ...]]] = []
    real = BatchGenerator.public_rows

    def public_rows(generator: BatchGenerator, label: str | None, reference: tuple[str, ...] = ()) -> object:
        seen.append((label, reference))
        return real(generator, label, reference)

    monkeypatch.setattr(BatchGenerator, 'public_rows', public_rows)
    given = {'reference': str(tmp_path / 'public.jsonl'), 'reference_size': 2, 'text_field': 'text'}
    config = with_settings(config, aggregate='difference', accounting='worst-case')
    assert audit.leave_one_out(with_settings(config, **given), outsiders=1).ok
    assert {label for label, _ in seen} == {'0', '1'}
    assert {frozenset(reference) for _, reference in seen} == {frozenset(('A parcel.', 'Two parcels.'))}
    seen.clear()
    alone = with_settings(config, reference_rounds=1)
    assert audit.leave_one_out(alone, outsiders=1).ok and {reference for _, reference in seen} == {()}


# Most examples end by themselves.
TEMPLATE = """
private = "{examples}\\n{label}\\n"
example = "{label}\\n{text}\\n"
public = "{label}\\n"
stop = [".", ",", " of", " in", " was", " and", " the"]
"""


@pytest.mark.parametrize('accounting', [pytest.param('worst-case', marks=pytest.mark.long), 'individual'])
def test_both_rounds_are_audited_with_what_the_first_releases(
    config: JobConfig, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, accounting: str
) -> None:
    """Each sabotage is noticed in either round by itself."""
    (tmp_path / 'prompt.toml').write_text(TEMPLATE)
    given = (
        {'accounting': accounting, 'max_private_tokens': 120}
        if accounting == 'worst-case'
        else {
            'accounting': accounting, 'max_private_tokens': None, 'max_batch_tokens': 120,
            'context_budget': 0.1, 'clip_bound': 1.0, 'shift_bound': 0.5, 'omega': 24.0, 'temperature': 1.0,
            'public_top_k': 200,
        }
    )  # fmt: skip
    monkeypatch.setattr(audit, 'MOST_PRIVATE_TOKENS', 6)
    monkeypatch.setattr(RunKey, 'new', lambda: RunKey(bytes(32)))
    config = with_settings(
        config, aggregate='difference', reference_size=2, max_example_tokens=24, labels=('0=Delivery',),
        prompt=str(tmp_path / 'prompt.toml'), **given,
    )  # fmt: skip
    seen: list[str] = []
    real = BatchGenerator.generate

    def generate(generator: BatchGenerator, *arguments: object) -> object:
        made = real(generator, *arguments)  # type: ignore[arg-type]
        seen.extend(example.text for example in made.examples if is_complete(example))
        return made

    monkeypatch.setattr(BatchGenerator, 'generate', generate)
    given_to: list[tuple[str, tuple[str, ...]]] = []
    case_of = replay.Case.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, generator: object, batch: Batch, *arguments: object, **named: object) -> object:
        given_to.append((str(batch.batch_id), tuple(named['reference'])))  # type: ignore[arg-type]
        return case_of(cls, generator, batch, *arguments, **named)

    monkeypatch.setattr(replay.Case, 'of', classmethod(of))
    result = audit.leave_one_out(config, outsiders=2)
    assert result.ok and 'VIOLATION' not in shown(result)
    plan, _ = audit.form_batches(config, RunKey(bytes(32)))
    (first,) = {str(name) for name in oracles.first_round(plan)}
    assert [batch.batch_id == first for batch in result.batches] == [True, False]
    # Only what that batch released, and of it what the public rule picks.
    assert seen, 'the first round completed too little: the test would show nothing'
    assert [reference for _, reference in given_to] == [
        (), tuple(oracles.pick_texts(seen, 2))
    ]  # fmt: skip
    assert [batch.reference_texts for batch in result.batches] == [0, min(2, len(seen))]
    for sabotage in (
        ('no-clipping', 'paste') if accounting == 'worst-case' else ('no-filter', 'half-price', 'no-growth')
    ):
        broken = audit.leave_one_out(config, outsiders=0, sabotage=sabotage)
        assert [batch.ok for batch in broken.batches] == [False, False], sabotage


def test_a_long_run_is_audited_at_its_beginning(config: JobConfig) -> None:
    long = with_settings(config, max_private_tokens=500, label_field=None, labels=())
    (batch,) = audit.leave_one_out(long, outsiders=0).batches
    assert batch.private_tokens == audit.MOST_PRIVATE_TOKENS and batch.label is None


def test_a_result_is_marked_as_restricted_and_shows_no_text(
    config: JobConfig, tmp_path: pathlib.Path
) -> None:
    told: list[str] = []
    result = audit.leave_one_out(config, progress=told.append)
    assert report.RESTRICTED in shown(result)
    document = json.loads(result.to_json())
    assert document['schema'] == audit.LEAVE_ONE_OUT_SCHEMA and document['audience'] == report.RESTRICTED
    assert document['batches'][0]['removed'] == list(result.batches[0].removed)
    assert CANARY not in repr(result) + result.to_json() + ' '.join(told)
    assert str(result.batches[0].bound) not in repr(result)
    path = tmp_path / 'audit.json'
    audit.write_audit(result, path)
    assert path.read_text() == result.to_json() and stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        audit.write_audit(result, path)
    with pytest.raises(ValueError, match="path='audit.txt'"):
        audit.write_audit(result, tmp_path / 'audit.txt')


@pytest.mark.parametrize(
    'changes',
    [
        {'batches_per_label': None},
        {'batches_per_label': None, 'count_rho': 1.0, 'clusters': 3},
        {'unit': 'user', 'unit_field': 'user', 'examples_per_context': 2},
        {'examples_per_context': 2},
        {'label_field': None, 'labels': ()},
    ],
    ids=['noisy counts', 'clusters', 'users', 'slots', 'no labels'],
)
def test_batches_hold_every_record_or_unit_once(config: JobConfig, changes: dict[str, object]) -> None:
    plan, batches = audit.form_batches(with_settings(config, **changes), RunKey(bytes(32)))
    assert [batch.batch_id for batch in batches] == list(plan.batch_ids())
    texts = [text for batch in batches for context in batch.contexts for text in context.texts]
    assert len(texts) == len(set(texts))
    units = sum(len(batch.contexts) for batch in batches)
    if 'unit' in changes:
        assert units == 25
    elif 'examples_per_context' in changes:
        assert 40 < len(texts) <= 60 and units < 60
    else:
        assert units == len(texts) == 60


def test_no_input_is_a_usage_error() -> None:
    with pytest.raises(ValueError, match='--input FILES'):
        audit.leave_one_out(job_config(aggregate='mean', max_private_tokens=5, delta=1e-5))


@pytest.mark.parametrize('aggregate', ['mean', pytest.param('median', marks=pytest.mark.long), 'difference'])
def test_pasted_keys_come_out_and_aggregated_ones_do_not(config: JobConfig, aggregate: str) -> None:
    config = with_settings(config, aggregate=aggregate, accounting='worst-case', max_private_tokens=40)
    told: list[str] = []
    right = audit.reconstruction(config, keys=200, seed=4, progress=told.append)
    assert right.ok and right.result.conclusive and right.result.synthetic == right.result.examples > 50
    assert right.result.keys == 200 and 'no sign of memory' in shown(right)
    assert right.epsilon is not None and right.epsilon > 0
    broken = audit.reconstruction(config, keys=200, seed=4, sabotage='paste')
    assert not broken.ok and broken.result.distinct_source_hits > 20
    assert broken.result.distinct_holdout_hits == 0 and 'SOURCE KEYS COME OUT' in shown(broken)
    document = json.loads(right.to_json())
    assert document['schema'] == audit.RECONSTRUCTION_SCHEMA and document['ok'] is True
    assert document['result']['p_value'] == right.result.p_value and document['audience'] == audit.MADE_UP


def test_a_seed_repeats_a_reconstruction(config: JobConfig) -> None:
    first, again, other = (audit.reconstruction(config, keys=60, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.skipif(not NEWS.exists(), reason=f'no AG News at {NEWS}')
def test_a_batch_of_news_stays_within_its_bound() -> None:
    config = job_config(
        input=str(NEWS), text_field='2', label_field='0', labels=('2=Sports',), batch_size=32,
        temperature=1.5, aggregate='median', max_private_tokens=16, max_prompt_tokens=80, delta=1e-5,
        max_example_tokens=12,
    )  # fmt: skip
    (batch,) = audit.leave_one_out(config).batches
    assert batch.ok and batch.contexts > 10
    # Loose only by so much: the audit has teeth.
    assert batch.empirical_epsilon > 0.02 * batch.bound
