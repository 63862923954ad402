"""The public groups of a run, by label and cluster."""

import dataclasses
import typing
from collections.abc import Sequence
from typing import Literal

CountSource = Literal['declared', 'noisy']


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """The public plan of one group: a label, or a label and a cluster.

    Attributes:
        label: The declared label; None where the run declares none.
        words: What the run declares to call the label; None where it declares no words for it.
        cluster: Index of a centre that the label keeps; None without clusters.
        batches: Planned batches; every one of them emits.
        noisy_count: Released noisy count of the group's contexts (of its records, where
            records share contexts without unit ids); None where the settings gave
            `batches`.
    """

    label: str | None
    words: str | None = None
    cluster: int | None = None
    batches: int
    noisy_count: int | None = None

    @property
    def name(self) -> str:
        """Label and words as pages show them."""
        return name_of_label(self.label, self.words)


def name_of_label(label: str | None, words: str | None) -> str:
    """A label's value and its declared words: '2 digestive system diseases'."""
    if label is None:
        return 'all records'
    return label if words is None else f'{label} {words}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCounts:
    """The released first histogram of one label (METHOD 3, steps 2 and 3).

    Attributes:
        label: The declared label; None where the run declares none.
        kept: Ascending indices of the centres that the label keeps.
        counts: Noisy count of the label's contexts nearest to each centre, all K of them.
    """

    label: str | None
    kept: tuple[int, ...]
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusters:
    """The source of a run's clusters and their cost. Public.

    Attributes:
        counts_rho: zCDP cost of `center_counts`.
        embedder: Name of what embeds the texts.
        embedder_fingerprint: SHA-256 of everything that determines its output.
        centers_fingerprint: SHA-256 of the centres.
        corpus_fingerprint: SHA-256 of the public texts that the centres were fitted on.
        corpus_texts: Number of those texts.
        center_counts: One entry per declared label.
    """

    counts_rho: float
    embedder: str
    embedder_fingerprint: str
    centers_fingerprint: str
    corpus_fingerprint: str
    corpus_texts: int
    center_counts: tuple[CenterCounts, ...]

    def __post_init__(self) -> None:
        if not self.counts_rho > 0:
            raise ValueError(
                f'Expected counts_rho > 0, got counts_rho={self.counts_rho!r}. Pass the cost that the '
                'accountant charged.'
            )
        if not self.center_counts or len({len(cells.counts) for cells in self.center_counts}) > 1:
            raise ValueError(
                f'Expected as many noisy counts for each label, got labels={len(self.center_counts)}. '
                'Pass the clustering of the plan.'
            )
        for cells in self.center_counts:
            if list(cells.kept) != sorted(set(cells.kept) & set(range(len(cells.counts)))):
                raise ValueError(
                    f'Expected kept to be ascending indices below {len(cells.counts)}, got '
                    f'kept={cells.kept!r}. Pass the clustering of the plan.'
                )

    @property
    def centers(self) -> int:
        """Number K of centres."""
        return len(self.center_counts[0].counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellCounts:
    """The released histogram of one label's cells.

    Attributes:
        label: The declared label; None where the run declares none.
        counts: Noisy count of the label's contexts in every cell.
    """

    label: str | None
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """Values of declared fields that examples are given, and their counts. Public.

    Attributes:
        fields: The fields, properties of the run's JSON Schema.
        values: Their values in JSON, one combination for every cell.
        counts_rho: zCDP cost of `cell_counts`.
        cell_counts: One entry per declared label.
    """

    fields: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    counts_rho: float
    cell_counts: tuple[CellCounts, ...]

    def __post_init__(self) -> None:
        if not self.counts_rho > 0:
            raise ValueError(
                f'Expected counts_rho > 0, got counts_rho={self.counts_rho!r}. Pass the cost that the '
                'accountant charged.'
            )
        if {len(cell.counts) for cell in self.cell_counts} != {len(self.values)}:
            raise ValueError(
                f'Expected a noisy count of each of cells={len(self.values)} for every label, got labels='
                f'{len(self.cell_counts)}. Pass the conditions of the plan.'
            )


class LabelTotals(typing.NamedTuple):
    """The plan of one label, its clusters taken together.

    Attributes:
        label: The declared label; None where the run declares none.
        words: What the run declares to call it; None where it declares no words for it.
        groups: Its groups: 1, or its clusters.
        batches: Their planned batches.
        noisy_count: Sum of their noisy counts; None where the settings gave the batches.
    """

    label: str | None
    words: str | None
    groups: int
    batches: int
    noisy_count: int | None

    @property
    def name(self) -> str:
        """Label and words as pages show them."""
        return name_of_label(self.label, self.words)


def totals_by_label(plan: Sequence[GroupPlan]) -> tuple[LabelTotals, ...]:
    """The plan summed over clusters, in the order of the labels."""
    groups: dict[str | None, list[GroupPlan]] = {}
    for group in plan:
        groups.setdefault(group.label, []).append(group)
    return tuple(
        LabelTotals(
            label,
            members[0].words,
            len(members),
            sum(group.batches for group in members),
            None
            if any(group.noisy_count is None for group in members)
            else sum(group.noisy_count or 0 for group in members),
        )
        for label, members in groups.items()
    )
