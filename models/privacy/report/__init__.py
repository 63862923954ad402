"""The privacy reports of a run: `PrivacyReport` for anyone, `RestrictedReport` for the curator.

The two are different types. They share no field but the run's public name, so a true count cannot get
from one into the other (METHOD 8). `PrivacyReport` answers the
checklist of METHOD 9 (PP appendix C, after Ponomareva et al. 2023, section 5.3.3; PP =
Amin et al. 2024).

released.py and restricted.py hold the types; groups.py, ledger.py and totals.py hold the parts on the
plan, on other runs and on the corpus; figures.py checks that figures follow from one another. build.py
makes a report from the facts of each part of the mechanism (models/privacy/facts.py) and from the
sentences of words.py that belong to no part. earlier_releases.py adds up what went into a run. codec.py
reads and writes the JSON.
"""

from models.privacy.facts import RhoStage, SampledGaussianStage, Sensitivity, Setting, Statement
from models.privacy.numbers import format_down, format_exact, format_up
from models.privacy.report.build import build_privacy_report
from models.privacy.report.codec import SCHEMA_VERSION
from models.privacy.report.groups import (
    CellCounts,
    Cells,
    CenterCounts,
    Clusters,
    CountSource,
    GroupPlan,
    LabelTotals,
    name_of_label,
    totals_by_label,
)
from models.privacy.report.ledger import (
    BUDGET_SLACK,
    GaussianLedgerEntry,
    LedgerEntry,
    MixedLedgerEntry,
    epsilon_of_budget,
)
from models.privacy.report.released import (
    PRIVACY_REPORT_SCHEMA,
    RELEASABLE,
    PrivacyReport,
)
from models.privacy.report.restricted import (
    RESTRICTED,
    RESTRICTED_REPORT_SCHEMA,
    BatchEpsilon,
    BatchFacts,
    ContextSpending,
    ExPostLosses,
    GroupContexts,
    PlaceLoss,
    RestrictedReport,
    SpendingOfBatch,
    context_spending,
    ex_post_losses,
)
from models.privacy.report.totals import ChosenTotals, CorpusTotals, StructuredTotals, TunedTotals

__all__ = [
    'BUDGET_SLACK',
    'PRIVACY_REPORT_SCHEMA',
    'RELEASABLE',
    'RESTRICTED',
    'RESTRICTED_REPORT_SCHEMA',
    'SCHEMA_VERSION',
    'BatchEpsilon',
    'BatchFacts',
    'CellCounts',
    'Cells',
    'CenterCounts',
    'ChosenTotals',
    'Clusters',
    'CorpusTotals',
    'StructuredTotals',
    'ContextSpending',
    'CountSource',
    'ExPostLosses',
    'GroupContexts',
    'GroupPlan',
    'LabelTotals',
    'GaussianLedgerEntry',
    'LedgerEntry',
    'MixedLedgerEntry',
    'epsilon_of_budget',
    'PlaceLoss',
    'PrivacyReport',
    'RestrictedReport',
    'RhoStage',
    'SampledGaussianStage',
    'Sensitivity',
    'Setting',
    'SpendingOfBatch',
    'Statement',
    'TunedTotals',
    'build_privacy_report',
    'context_spending',
    'ex_post_losses',
    'format_down',
    'format_exact',
    'format_up',
    'name_of_label',
    'totals_by_label',
]
