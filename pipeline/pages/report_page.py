"""The privacy report for people: one self-contained HTML page.

It shows a `PrivacyReport` and nothing else, so whatever it shows may be released.
"""

import math
from collections.abc import Mapping

from models.privacy import report
from models.privacy.earlier_release import EarlierRelease
from models.privacy.report import earlier_releases, groups, prediction, text_votes, tuning
from pipeline.pages import page, report_plots, signer

TEMPLATE = 'report.html.jinja'

_MAX_ROWS = 24


def render_html(privacy_report: report.PrivacyReport) -> str:
    """One HTML page with all of the report, but for the noisy counts per centre, which it draws."""
    epsilon, clusters = privacy_report.epsilon, privacy_report.clusters
    is_tuned = tuning.is_of_tuning(privacy_report.mechanism)
    is_voted = text_votes.is_of_text_votes(privacy_report.mechanism)
    if is_tuned:
        parts = tuning.facts(tuning.params_of(privacy_report.mechanism)).parts
    elif is_voted:
        parts = text_votes.facts(text_votes.params_of(privacy_report.mechanism)).parts
    else:
        parts = prediction.facts_of(privacy_report.mechanism).parts
    cluster_parts = () if clusters is None else groups.cluster_facts(clusters)
    sizes = (
        [report_plots.sizes_plot(privacy_report)]
        if _has_noisy_counts(privacy_report) and len(privacy_report.plan) > 1
        else []
    )
    names = {group.label: group.name for group in privacy_report.plan}
    centers = [] if clusters is None else [report_plots.centers_plot(clusters, names)]
    # A tall picture comes second of three, where two columns have room for it.
    if is_tuned:
        plots = [report_plots.tuning_plot(privacy_report), *sizes]
    elif is_voted:
        plots = [report_plots.budget_plot(privacy_report), report_plots.rounds_plot(privacy_report), *sizes]
    elif epsilon is None:
        plots = [report_plots.batches_plot(privacy_report), *centers, *sizes]
    else:
        first = [
            report_plots.budget_plot(privacy_report),
            report_plots.epsilon_plot(privacy_report),
            report_plots.batches_plot(privacy_report),
        ]
        plots = [*first, *sizes, *centers]
    return page.render(
        TEMPLATE,
        plots=plots,
        report=privacy_report,
        signer=signer.of_report(privacy_report),
        tuned=is_tuned,
        voted=is_voted,
        labels=report.totals_by_label(privacy_report.plan),
        shown_rows=_MAX_ROWS,
        cluster_facts=_cluster_facts(clusters),
        cell_rows=_cell_rows(privacy_report.cells, names),
        release_rows=[_release_row(of, privacy_report.charged_dataset) for of in privacy_report.releases],
        # The symbols of the last stages stand first: those of decoding are the ones that runs differ in.
        symbols=[symbol for part in reversed(parts) for symbol in part.symbols],
        why_no_sensitivity=[part.why_no_sensitivity for part in parts if part.why_no_sensitivity],
        # A set that keeps its order: two parts may share a paper.
        sources=dict.fromkeys(source for part in (*cluster_parts, *parts) for source in part.sources),
        noisy=_has_noisy_counts(privacy_report),
        unit=privacy_report.unit_noun,
        delta=report.format_exact(privacy_report.delta),
        ledger_delta=(
            None if privacy_report.ledger is None else report.format_exact(privacy_report.ledger.delta)
        ),
        likelihood_ratio=None if epsilon is None else _likelihood_ratio(epsilon),
    )


def _has_noisy_counts(privacy_report: report.PrivacyReport) -> bool:
    return all(group.noisy_count is not None for group in privacy_report.plan)


def _release_row(release: EarlierRelease, dataset: str | None) -> dict[str, str]:
    """A release that went in, as text."""
    charged = earlier_releases.place_in_ledger(release)
    way = '' if release.through is None else f', by way of {release.through}'
    unknown = '' if release.inputs_known else '; what went into it is not listed there'
    return {
        'run': f'{release.run_id}{way}',
        'method': release.method,
        'epsilon': report.format_up(release.epsilon),
        'delta': report.format_exact(release.delta),
        'one': prediction.unit_nouns(release.unit)[0],
        'charged': f'{charged[0].upper()}{charged[1:]}',
        'word': f'{earlier_releases.whose_word(release, dataset)}{unknown}',
    }


def _cell_rows(
    cells: report.Cells | None, names: Mapping[str | None, str]
) -> list[tuple[str, tuple[str, ...], int]]:
    """The name of a label, the values of a cell and its noisy count, for every one."""
    if cells is None:
        return []
    return [
        (names[of_label.label], values, count)
        for of_label in cells.cell_counts
        for values, count in zip(cells.values, of_label.counts, strict=True)
    ]


def _cluster_facts(clusters: report.Clusters | None) -> dict[str, report.Setting]:
    if clusters is None:
        return {}
    facts: dict[str, report.Setting] = {
        'Embedder': clusters.embedder,
        'Fingerprint of the embedder': clusters.embedder_fingerprint,
        'Fingerprint of the centres': clusters.centers_fingerprint,
    }
    if clusters.corpus_fingerprint is not None:
        facts |= {
            'Fingerprint of the public corpus': clusters.corpus_fingerprint,
            'Texts of the public corpus': clusters.corpus_texts,
        }
    return facts


def _likelihood_ratio(epsilon: float) -> str:
    if epsilon > math.log(1e6):
        return 'more than a million, which by itself promises little'
    return f'about {report.format_up(math.exp(epsilon))}'
