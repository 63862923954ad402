"""The card: a header the hub reads, text that shows names as they are, and a folder that loads."""

import dataclasses
import doctest
import os
import pathlib
import re
import subprocess
import sys
import typing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from models.privacy import accounting
from models.privacy.params import MechanismParams
from models.privacy.report import CenterCounts, CorpusTotals, GroupPlan, LedgerEntry, PrivacyReport
from models.records import SyntheticExample
from pipeline.pages import dataset_card, report_page
from tests.models.privacy.report import samples
from tests.models.privacy.report.samples import clusters
from transforms.predict import COLUMNS as PREDICTED

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=300, max_batch_tokens=4000
)
LABELLED = (
    GroupPlan(label='cardiology', batches=2, noisy_count=493),
    GroupPlan(label='a|b `c` <d> *e*\nf', batches=3, noisy_count=-7),
)
SCHEMA = pa.schema(
    [
        pa.field('text', pa.string()),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string()),
        pa.field('index_in_batch', pa.int32()),
        pa.field('private_tokens', pa.int32()),
        pa.field('public_tokens', pa.int32()),
        pa.field('truncated', pa.bool_()),
    ]
)


def make(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    arguments: dict[str, typing.Any] = {
        'run_id': 'visits-2025-06',
        'delta': 1e-6,
        'plan': LABELLED,
        'corpus': CorpusTotals(examples=2, private_tokens=40, public_tokens=60, truncated=1),
        'settings': {},
        'versions': {},
        'counts_rho': 0.005,
    }
    return samples.build(params, **(arguments | changes))


def make_clustered(params: MechanismParams = PARAMS) -> PrivacyReport:
    return make(
        params,
        plan=[
            GroupPlan(label='a', cluster=0, batches=2, noisy_count=493),
            GroupPlan(label='a', cluster=1, batches=1, noisy_count=-3),
            GroupPlan(label='b', cluster=1, batches=4, noisy_count=1_000),
        ],
        clusters=clusters(
            corpus_texts=20_000,
            center_counts=(
                CenterCounts(label='a', kept=(0, 1), counts=(400, 9)),
                CenterCounts(label='b', kept=(1,), counts=(4, 900)),
            ),
        ),
    )


def split(card: str) -> tuple[dict[str, typing.Any], str]:
    """The card's header, parsed, and its body."""
    empty, header, body = card.split('---\n', 2)
    assert empty == ''
    return yaml.safe_load(header), body


def write_folder(folder: pathlib.Path, examples: list[list[SyntheticExample]]) -> None:
    """A corpus folder as a run leaves it: card and reports, and one shard per list."""
    made = make()
    (folder / dataset_card.CARD_NAME).write_text(render_card(made), encoding='utf-8')
    (folder / 'privacy_report.json').write_text(made.to_json(), encoding='utf-8')
    (folder / 'privacy_report.html').write_text(report_page.render_html(made), encoding='utf-8')
    (folder / dataset_card.DATA_FOLDER).mkdir()
    for index, shard in enumerate(examples):
        name = dataset_card.DATA_FILES.replace('*', f'{index:05d}-of-{len(examples):05d}')
        with pq.ParquetWriter(folder / name, SCHEMA) as writer:
            # An empty shard has no row group at all: `datasets` 5.2 fails on a row group of no rows.
            if shard:
                writer.write_table(pa.Table.from_pylist([dataclasses.asdict(row) for row in shard], SCHEMA))


COLUMNS = PREDICTED.meanings


def render_card(made: PrivacyReport, **more: typing.Any) -> str:
    return dataset_card.render_card(made, columns=COLUMNS, **more)


def example(index: int, label: str | None) -> SyntheticExample:
    return SyntheticExample(
        text=f'Text {index} with a line\nbreak', label=label, batch_id='0000-000000', index_in_batch=index,
        private_tokens=20, public_tokens=30, truncated=index > 0,
    )  # fmt: skip


def test_header_is_what_the_hub_reads() -> None:
    header, _ = split(render_card(make(), languages=['en', 'fr'], license_name='cc-by-4.0'))
    assert header == {
        'pretty_name': 'Synthetic corpus visits-2025-06',
        'language': ['en', 'fr'],
        'license': 'cc-by-4.0',
        'size_categories': ['n<1K'],
        'task_categories': ['text-generation'],
        'tags': ['synthetic', 'differential-privacy'],
        'configs': [
            {'config_name': 'default', 'data_files': [{'split': 'train', 'path': 'data/train-*.parquet'}]}
        ],
    }


def test_header_leaves_out_what_is_unknown() -> None:
    header, _ = split(render_card(make()))
    assert not {'language', 'license'} & header.keys()


@pytest.mark.parametrize('title', ['a: b', '- x', '"quoted"', "it's #1", 'two\nlines', '---', 'yes', '内科'])
def test_header_survives_any_title(title: str) -> None:
    card = render_card(make(), title=title)
    found = re.match(r'---\n(.*?)\n---\n', card, flags=re.S)
    assert found
    header = yaml.safe_load(found[1])
    assert header['pretty_name'] == title
    assert header['tags'] == ['synthetic', 'differential-privacy']


def unescaped(markdown: str) -> str:
    return ' '.join(re.sub(r'\\([^\w\s])', r'\1', markdown).split())


def test_body_says_the_guarantee_its_unit_and_its_limits() -> None:
    made = make()
    _, body = split(render_card(made))
    seen = unescaped(body)
    for sentence in (
        made.guarantee, made.unit_of_privacy, made.delta_relation, *made.limits, *made.data_accesses[1:],
    ):  # fmt: skip
        assert sentence in seen
    for name in COLUMNS:
        assert f'| `{name}` |' in body


def test_the_model_is_named_where_the_report_names_it() -> None:
    made = make()
    named = dataclasses.replace(made, settings={**made.settings, 'model_origin': 'Gemma by <Google>, terms'})
    assert r'**Model.** Gemma by \<Google\>, terms.' in render_card(named)
    assert '**Model.**' not in render_card(made)


def test_labels_stay_in_their_cells() -> None:
    _, body = split(render_card(make()))
    section = body.partition('## Labels\n\n')[2].partition('\n\n')[0]
    rows = [re.split(r'(?<!\\)\|', line)[1:-1] for line in section.splitlines()]
    assert [len(row) for row in rows] == [3, 3, 3, 3]
    assert unescaped(rows[3][0]) == 'a|b `c` <d> *e* f'
    assert [cell.strip() for cell in rows[3][1:]] == ['3', '-7']


@pytest.mark.parametrize(
    ('plan', 'expected'),
    [
        ([GroupPlan(label=None, batches=4)], 'None: the column is null. 4 batches'),
        ([GroupPlan(label='a', batches=4)], '| Label | Batches |\n'),
        ([GroupPlan(label='2', words='digestive *', batches=4)], '| 2 digestive \\* | 4 |'),
    ],
)
def test_labels_without_noisy_counts(plan: list[GroupPlan], expected: str) -> None:
    assert expected in render_card(make(plan=plan, counts_rho=0.0))


def test_clusters_are_summed_by_label() -> None:
    body = render_card(make_clustered())
    section = body.partition('## Labels\n\n')[2].partition('\n\n')[0].splitlines()
    assert section[0] == '| Label | Clusters | Batches | Noisy count of records |'
    assert section[2:] == ['| a | 2 | 3 | 490 |', '| b | 1 | 4 | 1,000 |']


def test_a_median_run_is_not_tagged_as_differentially_private() -> None:
    made = make_clustered(dataclasses.replace(PARAMS, aggregate='median', clip_bound=6.0))
    header, body = split(render_card(made))
    assert header['tags'] == ['synthetic']
    assert 'is bounded' not in body and 'curator, who also holds the figure' in body
    assert made.guarantee in unescaped(body)


def test_user_unit_is_named() -> None:
    params = dataclasses.replace(PARAMS, unit='user', examples_per_context=8)
    _, body = split(render_card(make(params)))
    assert 'about any one user is bounded' in body and '| Noisy count of users |' in body
    assert '**Unit of privacy.** One user' in body


@pytest.mark.parametrize(
    ('examples', 'category'),
    [(0, 'n<1K'), (999, 'n<1K'), (1000, '1K<n<10K'), (10**6, '1M<n<10M'), (10**9, 'n>1B')],
)
def test_size_category(examples: int, category: str) -> None:
    assert dataset_card.size_category(examples) == category


def test_docstring_examples() -> None:
    assert doctest.testmod(dataset_card).failed == 0


def commands(library: str) -> str:
    """The two lines of the card that load the folder with a library."""
    card = render_card(make())
    found = re.search(rf'^import {library}\n(corpus = .*\n)', card, flags=re.M)
    assert found
    return found[0]


SHARDS = [[example(0, 'cardiology'), example(1, None)], [], [example(2, 'cardiology')]]


def test_pandas_loads_the_folder_as_the_card_says(tmp_path: pathlib.Path) -> None:
    write_folder(tmp_path, SHARDS)
    scope: dict[str, typing.Any] = {}
    exec(commands('pandas').replace('path/to/this/folder', tmp_path.as_posix()), scope)
    corpus = scope['corpus']
    assert list(corpus.columns) == list(COLUMNS)
    assert list(corpus['text']) == [row.text for shard in SHARDS for row in shard]
    assert corpus['label'].isna().tolist() == [False, True, False]


@pytest.mark.run
def test_datasets_loads_the_folder_as_the_card_says(tmp_path: pathlib.Path) -> None:
    pytest.importorskip('datasets', reason='the datasets package is not installed')
    folder = tmp_path / 'corpus'
    folder.mkdir()
    write_folder(folder, SHARDS)
    code = commands('datasets').replace('path/to/this/folder', folder.as_posix()) + (
        'print(corpus.column_names, len(corpus), corpus[2]["text"] == "Text 2 with a line\\nbreak")'
    )
    # A process of its own: the package reads its environment when it is imported.
    offline = {'HF_HUB_OFFLINE': '1', 'HF_DATASETS_OFFLINE': '1', 'HF_HOME': str(tmp_path / 'cache')}
    done = subprocess.run(
        [sys.executable, '-c', code],
        env=os.environ | offline, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f'{list(COLUMNS)} 3 True'


def test_the_card_of_a_charged_run_says_what_all_runs_are_together() -> None:
    rho = typing.cast(float, make().rho_total)
    entry = LedgerEntry(
        dataset='visits_*2025*', run_number=2, rho_before=0.5, rho=rho, rho_after=0.5 + rho,
        epsilon_after=accounting.epsilon_from_rho(0.5 + rho, 1e-6), delta=1e-6, rho_budget=2.0,
        epsilon_budget=None, rho_bound=2.0, epsilon_bound=accounting.epsilon_from_rho(2.0, 1e-6),
    )  # fmt: skip
    body = split(render_card(make(ledger=entry)))[1]
    assert "**All runs on these records.** All 2 runs on dataset 'visits\\_\\*2025\\*'" in body
    limits = body.partition('## What the guarantee does not say')[2]
    assert 'Covered' not in limits and 'not charged to this ledger' in limits
    assert 'All runs on these records' not in render_card(make())
