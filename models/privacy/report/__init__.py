"""The privacy reports of a run: `PrivacyReport` for anyone, `RestrictedReport` for the curator.

The two are different types. They share no field but the run's public name, so a true count cannot get
from one into the other (METHOD 8). `PrivacyReport` answers the
checklist of METHOD 9 (PP appendix C, after Ponomareva et al. 2023, section 5.3.3; PP =
Amin et al. 2024).

What a run did with the records is one of four types: `Predicted`, `Tuned`, `Voted` or `TunedVoted`. Every
figure of a report follows from it and from delta, and every sentence from both: `words` renders the templates
of that type. build.py puts a report together; composition.py adds up what went into a run; groups.py,
ledger.py and totals.py hold the parts on the plan, on other runs and on the corpus.
"""

from models.privacy.facts import RhoStage, SampledGaussianStage, Sensitivity, Setting, Statement
from models.privacy.numbers import format_down, format_exact, format_up
from models.privacy.report.build import build_privacy_report
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
from models.privacy.report.predicted import GivenReference, Predicted
from models.privacy.report.released import RELEASABLE, Described, PrivacyReport
from models.privacy.report.restricted import (
    RESTRICTED,
    BatchEpsilon,
    BatchFacts,
    ContextSpending,
    ExPostLosses,
    GroupContexts,
    PlaceLoss,
    RestrictedReport,
    SpendingOfBatch,
    WorkerTime,
    context_spending,
    ex_post_losses,
)
from models.privacy.report.totals import ChosenTotals, CorpusTotals, StructuredTotals, TunedTotals
from models.privacy.report.tuned import Tuned
from models.privacy.report.tuned_voted import TunedVoted
from models.privacy.report.voted import Voted
