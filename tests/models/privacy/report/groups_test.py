"""The public groups: clusters that contradict themselves are refused, labels sum over clusters."""

import dataclasses
import re
import typing

import pytest

from models.privacy import report
from models.privacy.report import CenterCounts
from tests.models.privacy.report.samples import CENTER_COUNTS, CLUSTERED, ONE_LABEL, clusters


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'counts_rho': 0.0}, 'counts_rho=0.0'),
        ({'center_counts': ()}, 'labels=0'),
        ({'center_counts': (CENTER_COUNTS[0], CenterCounts(label='b', kept=(0,), counts=(1,)))}, 'labels=2'),
        ({'center_counts': (CenterCounts(label='b', kept=(1,), counts=(1,)),)}, 'kept=(1,)'),
        ({'center_counts': (CenterCounts(label='b', kept=(1, 0), counts=(1, 2)),)}, 'kept=(1, 0)'),
    ],
)
def test_clusters_refuse(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(clusters(), **changes)


def test_plan_is_summed_over_the_clusters_of_a_label() -> None:
    assert report.totals_by_label(CLUSTERED) == (('a', None, 2, 3, 694), ('b', None, 1, 3, 771))
    assert report.totals_by_label(ONE_LABEL) == ((None, None, 1, 4, None),)
