"""The curator's page: marked, complete, self-contained, and silent where a run has no losses."""

import dataclasses
import re
from typing import Any

import pytest

from models.privacy import report
from models.privacy.report import (
    BatchEpsilon,
    ContextSpending,
    ExPostLosses,
    GroupContexts,
    PlaceLoss,
    RestrictedReport,
    SpendingOfBatch,
    WorkerTime,
)
from pipeline.pages import restricted_page
from tests.pipeline.pages.report_page_test import NASTY, Page, plain

LOSSES = ExPostLosses(
    run_ex_post_epsilon=2.2501,
    run_paper_epsilon=3.5,
    loss_by_batch={
        '0000-000000': BatchEpsilon(ex_post_epsilon=1.75, paper_epsilon=2.25),
        '0000-000001': BatchEpsilon(ex_post_epsilon=2.2501, paper_epsilon=3.5),
    },
    loss_by_place=(
        PlaceLoss(tokens=8, mean=0.5, lower_decile=0.25, upper_decile=0.875),
        PlaceLoss(tokens=0, mean=0.0, lower_decile=0.0, upper_decile=0.0),
        PlaceLoss(tokens=3, mean=0.1, lower_decile=0.05, upper_decile=0.2),
    ),
)
WORKER = WorkerTime(
    device='NVIDIA H200', devices=2, peak_bytes=3 * 2**29, elapsed_seconds=1800.0, loading_seconds=12.25,
    compiling_seconds=34.5, training_seconds=0.0, embedding_seconds=5.0, decoding_seconds=1700.0,
    waiting_seconds=48.25, programs=1017, training_tokens=0, decoding_tokens=3_400_000,
)  # fmt: skip
MEDIAN = RestrictedReport(
    run_id='visits-2025-06',
    records_read=1201,
    rejected_by_reason={'blank_text': 3, 'unknown_label': 4},
    contexts_per_batch={'0000-000000': 251, '0000-000001': 0},
    true_counts_by_group=(
        GroupContexts(restricted_label='cardiology', restricted_cluster=7, true_count=251),
        GroupContexts(restricted_label=NASTY, restricted_cluster=9, true_count=0),
    ),
    losses=LOSSES,
    workers=(WORKER, dataclasses.replace(WORKER, device='processor', devices=1, decoding_tokens=0)),
    texts_written=500,
)
MEAN = dataclasses.replace(MEDIAN, losses=None)
SPENDING = ContextSpending(
    share_spent_deciles=(0.0, 0.1, 0.2, 0.3, 0.35, 0.42, 0.5, 0.6, 0.75, 0.9, 1.0),
    share_voting=(1.0, 1.0, 0.875, 0.5, 0.25),
    spending_by_batch={
        '0000-000000': SpendingOfBatch(
            stream_tokens=1234,
            mean_share_spent=0.41,
            largest_share_spent=0.97,
            last_voters=62,
            first_silent=2,
        ),
        '0000-000001': SpendingOfBatch(
            stream_tokens=5, mean_share_spent=0.0, largest_share_spent=0.0, last_voters=0, first_silent=None
        ),
    },
)
INDIVIDUAL = dataclasses.replace(MEAN, spending=SPENDING)
NO_CONTEXTS = dataclasses.replace(
    MEAN,
    contexts_per_batch={'0000-000001': 0},
    spending=dataclasses.replace(
        SPENDING,
        share_spent_deciles=(),
        share_voting=(0.0,) * 5,
        spending_by_batch={'0000-000001': SPENDING.spending_by_batch['0000-000001']},
    ),
)
ONE_BATCH = dataclasses.replace(
    MEDIAN,
    rejected_by_reason={},
    contexts_per_batch={'0000-000000': 5},
    true_counts_by_group=(GroupContexts(restricted_label=None, true_count=5),),
    losses=dataclasses.replace(
        LOSSES,
        loss_by_batch={'0000-000000': BatchEpsilon(ex_post_epsilon=0.0, paper_epsilon=0.0)},
        loss_by_place=(),
    ),
)
REPORTS = [
    pytest.param(MEDIAN, id='median'),
    pytest.param(MEAN, id='mean'),
    pytest.param(INDIVIDUAL, id='individual'),
    pytest.param(NO_CONTEXTS, id='no-contexts'),
    pytest.param(ONE_BATCH, id='one-batch'),
    pytest.param(dataclasses.replace(MEDIAN, run_id=NASTY), id='nasty'),
]


@pytest.mark.parametrize('restricted', REPORTS)
def test_page_is_well_formed_loads_nothing_and_is_marked(restricted: RestrictedReport) -> None:
    text = restricted_page.render_restricted_page(restricted)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)) and set(page.references) <= set(page.ids)
    assert not {tag for tag, _ in page.elements} & {'script', 'link', 'img', 'iframe', 'object'}
    title = re.search(r'<title>(\w+)', text)
    assert title and title[1] == 'RESTRICTED'
    seen = plain(page.text.partition('RESTRICTED to the curator')[2])
    assert seen.startswith('. It holds true counts: never publish it. Restricted report of')
    assert report.RELEASABLE not in text


def test_page_holds_the_figures_of_the_report() -> None:
    seen = plain(Page(restricted_page.render_restricted_page(MEDIAN)).text)
    for words in (
        'Rows read 1,201', 'Rows rejected 7', 'blank text 3', 'unknown label 4',
        'ε of the run 2.26', 'By the paper’s sum 3.5', '0000-000001 0 2.26 3.5 0000-000000 251 1.75 2.25',
        'cardiology 7 251', '2 batches, 0 to 251 contexts', '1 are empty',
    ):  # fmt: skip
        assert words in seen, words


def test_page_says_what_the_time_went_to_and_what_texts_cost_at_a_price() -> None:
    row = '1,800.0 12.2 34.5 0.0 5.0 1,700.0 48.2 1.50 GiB'
    seen = plain(Page(restricted_page.render_restricted_page(MEDIAN)).text)
    # Two devices for half an hour, and one; tokens are of 3,400 seconds of decoding.
    for words in (
        'of all rows 1,000',
        'Hours of devices 1.5',
        f'2 × NVIDIA H200 {row}',
        f'1 × processor {row}',
    ):
        assert words in seen, words
    assert 'Cost' not in seen and '--device-hour-price' in seen
    priced = dataclasses.replace(MEDIAN, device_hour_price=2.5)
    seen = plain(Page(restricted_page.render_restricted_page(priced)).text)
    assert 'Cost of the run, at 2.5 an hour of a device 3.75 Cost of 1,000 texts 7.5' in seen
    assert '--device-hour-price' not in seen
    seen = plain(
        Page(restricted_page.render_restricted_page(dataclasses.replace(priced, texts_written=0))).text
    )
    assert 'Cost of 1,000 texts –' in seen
    without = restricted_page.render_restricted_page(dataclasses.replace(MEDIAN, workers=()))
    assert 'Time of the workers' not in without


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'records_read': 0, 'rejected_by_reason': {}}, 'No row was read'),
        ({'rejected_by_reason': {'unknown_label': 1201}}, 'Every row was rejected'),
        (
            {'rejected_by_reason': {'unknown_label': 100, 'blank_text': 21}},
            '10% of the rows were rejected, 100',
        ),
        ({'contexts_per_batch': {'0000-000000': 0, '0000-000001': 3}}, '1 of 2 batches held no record'),
        ({'spending': SPENDING}, '75% of the contexts had spent their budget'),
    ],
)
def test_what_is_alarming_stands_in_red_above_the_figures(changes: dict[str, Any], said: str) -> None:
    quiet = dataclasses.replace(MEAN, contexts_per_batch={'0000-000000': 251, '0000-000001': 260})
    assert not restricted_page.alarms_of(quiet)
    assert not any('spent' in alarm for alarm in restricted_page.alarms_of(NO_CONTEXTS))
    page = restricted_page.render_restricted_page(dataclasses.replace(quiet, **changes))
    red = re.findall(r'<p class="readers warn">(.*?)</p>', page.partition('<dl')[0], re.DOTALL)
    assert any(said in plain(alarm) for alarm in red), red


def test_records_that_equal_a_reference_text_are_counted_where_there_is_one() -> None:
    shared = Page(
        restricted_page.render_restricted_page(dataclasses.replace(MEAN, records_in_reference=1357))
    )
    assert 'Records that equal a reference text 1,357' in plain(shared.text)
    assert 'reference text' not in Page(restricted_page.render_restricted_page(MEAN)).text


def test_page_holds_what_contexts_spent() -> None:
    seen = plain(Page(restricted_page.render_restricted_page(INDIVIDUAL)).text)
    for words in (
        'Half of the contexts spent at most 42 %', 'Voting on the last token 25 %',
        'First one silent at token 3',
        '0000-000000 251 1,234 41 % 97 % 62 3 0000-000001 0 5 0 % 0 % 0 –',
        'half of them spent 42 % or less',
    ):  # fmt: skip
        assert words in seen, words
    empty = plain(Page(restricted_page.render_restricted_page(NO_CONTEXTS)).text)
    assert 'Half of the contexts spent at most –' in empty and 'First one silent at token never' in empty
    assert 'No context ever sat out.' in empty


@pytest.mark.parametrize('sizes', [[0], [5, 5, 5], [0, 1], list(range(0, 900, 7))])
def test_every_batch_is_in_the_histogram_of_sizes(sizes: list[int]) -> None:
    restricted = dataclasses.replace(
        MEDIAN, contexts_per_batch={f'0000-{index:06d}': size for index, size in enumerate(sizes)}
    )
    caption = restricted_page.batch_sizes_plot(restricted).caption
    assert caption.startswith(f'{len(sizes)} batches, {min(sizes)} to {max(sizes)} contexts')
    counts, edges = restricted_page.size_histogram(sizes)
    assert counts.sum() == len(sizes) and len(edges) == len(counts) + 1 <= 32
