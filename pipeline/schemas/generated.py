"""The published schemas, made from the types that write the JSON.

A field that is added, renamed or dropped there changes the schema here; a test compares the files of this
folder with what is made. Write them anew with `python -m pipeline.schemas.generated`.
"""

import dataclasses
import json
import pathlib
import typing
from collections.abc import Mapping
from typing import Any

from models.audits import result as canary_audit
from models.batch_plan import BatchPlan, Clustering
from models.clustering import centers
from models.finetuning import adapter
from models.privacy import report
from pipeline import comparison, model_list
from pipeline.check import input_check
from pipeline.evaluation import evaluation
from pipeline.ledger import released
from pipeline.ledger.tables import SCHEMA_VERSION as LEDGER_VERSION
from pipeline.methods.evolve.plan import VotingPlan
from pipeline.methods.fine_tune.plan import TuningPlan
from pipeline.methods.predict.plan import PredictionPlan
from pipeline.schemas import ledger, printed
from pipeline.schemas.documents import DOCUMENTS, SUFFIX, names
from pipeline.schemas.json_schema import described, schema_of, with_keys

DIALECT = 'https://json-schema.org/draft/2020-12/schema'

_DESCRIPTIONS = {
    'schema': 'What kind of document this is.',
    'schema_version': 'Changes with every change that a reader has to know of.',
    'audience': 'Who may read it.',
    'ok': 'Whether nothing was found that should not be there.',
}


@dataclasses.dataclass(frozen=True)
class _Root:
    """What a document is made from.

    Attributes:
        type: A dataclass or a TypedDict.
        header: Keys before its fields: name to type.
    """

    type: Any
    header: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def generate(name: str) -> str:
    """The schema of a document as text, made from its type."""
    root, where = _ROOTS[name], DOCUMENTS[name]
    words = described(root.type)
    made = schema_of(with_keys(root.type, root.header))
    of_key = {**words['properties'], **_DESCRIPTIONS}
    for key, value in made['properties'].items():
        if key in of_key:
            value['description'] = of_key[key]
    found = {
        '$schema': DIALECT,
        'title': f'dp-corpus {name}',
        'description': f'{where} {words["description"]}'.strip(),
        **{key: value for key, value in made.items() if key not in ('title', 'description')},
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + '\n'


def _const(*values: object) -> Any:
    # By its name: type checkers take no computed literal.
    return vars(typing)['Literal'][values]


def _header(schema: str, version: int, *audiences: str) -> dict[str, Any]:
    return {'schema': _const(schema), 'schema_version': _const(version), 'audience': _const(*audiences)}


def _centers() -> Any:
    """Centres without their vectors, which have a file of their own."""
    hints = typing.get_type_hints(centers.Centers)
    # Named in a variable: type checkers take no computed TypedDict.
    make: Any = typing.TypedDict
    kept = {name: hint for name, hint in hints.items() if name != 'vectors'}
    made = make('Centers', kept | {'versions': Mapping[str, str]})
    made.__doc__ = centers.Centers.__doc__
    return made


_LEDGER = {'schema': _const('dp-corpus/ledger'), 'schema_version': _const(LEDGER_VERSION)}
_OF_CURATOR = {'audience': _const(released.RESTRICTED)}
_ROOTS: Mapping[str, _Root] = {
    'privacy-report': _Root(
        report.PrivacyReport,
        _header(report.PRIVACY_REPORT_SCHEMA, report.SCHEMA_VERSION, report.RELEASABLE),
    ),
    'restricted-report': _Root(
        report.RestrictedReport,
        _header(report.RESTRICTED_REPORT_SCHEMA, report.SCHEMA_VERSION, report.RESTRICTED),
    ),
    'canary-audit': _Root(
        canary_audit.CanaryAudit,
        _header(canary_audit.SCHEMA, canary_audit.SCHEMA_VERSION, report.RESTRICTED) | {'ok': bool},
    ),
    'input-check': _Root(
        input_check.InputCheck,
        _header(input_check.SCHEMA, input_check.SCHEMA_VERSION, report.RESTRICTED),
    ),
    'evaluation': _Root(
        evaluation.Evaluation,
        _header(evaluation.SCHEMA, evaluation.SCHEMA_VERSION, evaluation.RESTRICTED, evaluation.SHAREABLE),
    ),
    'run-plan': _Root(PredictionPlan),
    'tuning-plan': _Root(TuningPlan),
    'voting-plan': _Root(VotingPlan),
    'plan-comparison': _Root(comparison.Comparison),
    'adapter': _Root(
        adapter.AdapterCard,
        {'schema': _const(adapter.SCHEMA), 'schema_version': _const(adapter.SCHEMA_VERSION)},
    ),
    'batch-plan': _Root(BatchPlan),
    'clustering': _Root(Clustering),
    'centers': _Root(_centers(), {'schema': _const(centers.SCHEMA), 'count': int, 'dimensions': int}),
    'ledger': _Root(ledger.Export, _LEDGER),
    'ledger-restricted': _Root(ledger.ExportOfCurator, _LEDGER | _OF_CURATOR),
    'ledger-accounts': _Root(ledger.Accounts),
    'ledger-accounts-restricted': _Root(ledger.AccountsOfCurator, _OF_CURATOR),
    'models': _Root(model_list.ModelList),
    'fitted-centers': _Root(printed.FittedCenters),
    'run': _Root(printed.RunIdentity),
    'failure': _Root(printed.Failure),
}


if __name__ == '__main__':
    for each in names():
        pathlib.Path(__file__).with_name(f'{each}{SUFFIX}').write_text(generate(each), encoding='utf-8')
