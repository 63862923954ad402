"""The plan of a run's batches: their number in each group, and the released counts behind it (METHOD 2, 3).

A group is a label, or a label and a cluster. The plan is public, or paid for: see `contexts_rho`.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from models.conditions import Conditions, Turns
from models.privacy import intact
from models.records import BatchId

# A group: (label, cluster), with None in a run without labels, and in one without clusters.
GroupName = tuple[str | None, int | None]

# `BatchId` writes four digits, and names are sorted as text.
MAX_GROUPS = 10_000
_RESTORE = 'Restore it, or start a new run in a fresh work directory'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering:
    """The centres that each label keeps, by released noisy counts (METHOD 3, steps 2 and 3).

    Attributes:
        kept: For each label, the ascending indices of the centres that it keeps.
        noisy_counts: For each label, the released noisy count of contexts of every centre.
        rho: zCDP cost of `noisy_counts`.
    """

    kept: tuple[tuple[int, ...], ...]
    noisy_counts: tuple[tuple[int, ...], ...]
    rho: float

    def __post_init__(self) -> None:
        if not self.noisy_counts or len({len(cells) for cells in self.noisy_counts}) > 1:
            raise ValueError(
                f'Expected as many noisy counts for each label, got labels={len(self.noisy_counts)}, '
                f'counts={sorted({len(cells) for cells in self.noisy_counts})}. '
                'Restore clustering.json, or start a new run in a fresh work directory.'
            )
        if len(self.kept) != len(self.noisy_counts) or not all(
            indices
            and list(indices) == sorted(set(indices))
            and 0 <= indices[0] <= indices[-1] < self.centers
            for indices in self.kept
        ):
            raise ValueError(
                f'Expected ascending indices below {self.centers} for each label, got kept={self.kept!r}. '
                'Restore clustering.json, or start a new run in a fresh work directory.'
            )
        if not (math.isfinite(self.rho) and self.rho > 0):
            raise ValueError(
                f'Expected rho > 0, got rho={self.rho!r}. Noisy counts are paid for: state their price.'
            )

    @property
    def centers(self) -> int:
        """Number K of centres that were counted."""
        return len(self.noisy_counts[0])

    def to_json(self) -> str:
        """The clustering as JSON: the same text for the same clustering."""
        return _to_json(self)

    @classmethod
    @intact.reading('clustering.json', _RESTORE)
    def from_json(cls, text: str) -> 'Clustering':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a clustering.
        """
        return cls(**_fields_of(cls, json.loads(text), 'clustering.json'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The batch plan: public, or paid for by `contexts_rho` (METHOD 2).

    Attributes:
        labels: The declared labels in their declared order; a single None when the run
            declares no labels. A label is one group or, with clusters, one group for each
            centre that it keeps.
        batches_per_group: The number of batches of each group, at least 1, in the order of
            `group_names`; 0 of each where the config asks for no text.
        noisy_counts: The released noisy count of contexts of each group; None when
            the numbers of batches come from the config.
        contexts_rho: zCDP cost of `noisy_counts`; 0 without them.
        clustering: The centres that each label keeps, with a price of their own; None
            without clusters.
        conditions: The noisy counts that decide which values of declared fields examples get, with a
            price of their own; None where examples get none.
    """

    labels: tuple[str | None, ...]
    batches_per_group: tuple[int, ...]
    noisy_counts: tuple[int, ...] | None
    contexts_rho: float
    clustering: Clustering | None = None
    conditions: Conditions | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if self.conditions is not None and len(self.conditions.noisy_counts) != len(self.labels):
            raise ValueError(
                f'Expected counts of cells for each of labels={self.labels!r}, got labels='
                f'{len(self.conditions.noisy_counts)}. Draw both again for these labels in a fresh work '
                'directory.'
            )
        if self.clustering is not None and len(self.clustering.kept) != len(self.labels):
            raise ValueError(
                f'Expected kept centres for each label, got kept={self.clustering.kept!r}, '
                f'labels={self.labels!r}. Draw both again for these labels in a fresh work directory.'
            )
        groups = len(self.group_names)
        if groups > MAX_GROUPS:
            raise ValueError(
                f'Expected at most {MAX_GROUPS} groups, got groups={groups}. '
                'Keep fewer centres for each label, or declare fewer labels.'
            )
        is_without_text = not any(self.batches_per_group)
        has_every_batch = min(self.batches_per_group, default=0) >= 1
        if len(self.batches_per_group) != groups or not (has_every_batch or is_without_text):
            raise ValueError(
                f'Expected at least one batch for each of {groups} groups, got '
                f'batches_per_group={self.batches_per_group!r}, labels={self.labels!r}. '
                'Give one positive whole number per declared label, or per kept centre of each.'
            )
        if self.noisy_counts is not None and len(self.noisy_counts) != groups:
            raise ValueError(
                f'Expected one noisy count for each of {groups} groups, got '
                f'noisy_counts={self.noisy_counts!r}, labels={self.labels!r}. '
                'Draw the batch plan again for these labels in a fresh work directory.'
            )
        if not math.isfinite(self.contexts_rho) or (self.contexts_rho > 0) != (self.noisy_counts is not None):
            raise ValueError(
                'Expected a positive contexts_rho with noisy counts and 0 without, got '
                f'contexts_rho={self.contexts_rho!r}, noisy_counts={self.noisy_counts!r}. '
                'Noisy counts are paid for; configured numbers of batches cost nothing.'
            )

    @functools.cached_property
    def group_names(self) -> tuple[GroupName, ...]:
        """(label, cluster) of each group: label by label, then in the order of the kept centres."""
        if self.clustering is None:
            return tuple((label, None) for label in self.labels)
        kept_by_label = zip(self.labels, self.clustering.kept, strict=True)
        return tuple((label, cluster) for label, kept in kept_by_label for cluster in kept)

    @property
    def group_labels(self) -> tuple[str | None, ...]:
        """The label of each group."""
        return tuple(label for label, _ in self.group_names)

    @functools.cached_property
    def groups(self) -> dict[GroupName, int]:
        """(label, cluster) -> index of its group."""
        return {name: group for group, name in enumerate(self.group_names)}

    def group_of(self, label: str | None, cluster: int | None) -> int | None:
        """The group of a record, or of a unit by its first record; None for an undeclared label.

        Args:
            label: The record's label.
            cluster: The record's cluster; it plays no part where the batch plan has no clusters.

        Raises:
            RuntimeError: The batch plan has clusters, and the label keeps another or no such cluster.
        """
        group = self.groups.get((label, None if self.clustering is None else cluster))
        if group is None and label in self.labels:
            raise RuntimeError(
                'Expected every record in a cluster that its label keeps, got one in another or in none. '
                'Choose clusters among the kept centres of the clustering in this batch plan.'
            )
        return group

    def batch_ids(self) -> Iterator[BatchId]:
        """The name of every planned batch, by group and then by index."""
        for group, batches in enumerate(self.batches_per_group):
            for index in range(batches):
                yield BatchId(group=group, index=index)

    def turns_of(self, batch_id: BatchId) -> Turns | None:
        """The cells that a batch's examples get; None where they get no values."""
        if self.conditions is None:
            return None
        order = self.labels.index(self.group_names[batch_id.group][0])
        groups = [group for group, label in enumerate(self.group_labels) if label == self.labels[order]]
        before = (self.batches_per_group[group] for group in groups if group < batch_id.group)
        return Turns(
            shares=self.conditions.shares(order),
            label=order,
            place=sum(before) + batch_id.index,
            batches=sum(self.batches_per_group[group] for group in groups),
        )

    def to_json(self) -> str:
        """The batch plan as JSON: the same text for the same plan."""
        return _to_json(self)

    @classmethod
    @intact.reading('plan.json', _RESTORE)
    def from_json(cls, text: str) -> 'BatchPlan':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a batch plan.
        """
        plain = _fields_of(cls, json.loads(text), 'plan.json')
        if plain['clustering'] is not None:
            plain['clustering'] = Clustering(**_fields_of(Clustering, plain['clustering'], 'plan.json'))
        if plain['conditions'] is not None:
            plain['conditions'] = Conditions.of_plain(plain['conditions'], 'plan.json')
        return cls(**plain)


def _to_json(value: BatchPlan | Clustering) -> str:
    return json.dumps(dataclasses.asdict(value), indent=2, ensure_ascii=False) + '\n'


def _fields_of(kind: type, values: object, file: str) -> dict[str, Any]:
    """The fields of a dataclass from a JSON object, with tuples for lists."""
    fields = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(values, dict) or set(values) != fields:
        raise ValueError(
            f'Expected a {kind.__name__} with the fields {sorted(fields)}, got another JSON value. '
            f'Restore {file}, or start a new run in a fresh work directory.'
        )
    return {name: _tuples(value) for name, value in values.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def check_labels(labels: Sequence[str | None]) -> None:
    """Refuses labels that cannot name groups.

    Raises:
        ValueError: There is no label, one label occurs twice, or None stands beside others.
    """
    if not labels or len(set(labels)) != len(labels) or (None in labels and len(labels) > 1):
        raise ValueError(
            'Expected distinct labels, or a single None for a run without labels, got '
            f'labels={tuple(labels)!r}. '
            'Declare each label once.'
        )
