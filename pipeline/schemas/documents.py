"""The JSON Schema (draft 2020-12) of every JSON that dp-corpus writes for users, made from the types.

The types are those that write the JSON, so a field that is added, renamed or dropped there
changes the schema here; a test compares the files of this folder with what is made. Write
them anew with `python -m pipeline.schemas.documents`.

No schema can tell NaN from a number: NaN is not JSON at all, and nothing here writes it.
"""

import dataclasses
import importlib.resources
import json
import pathlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

DIALECT = 'https://json-schema.org/draft/2020-12/schema'
SUFFIX = '.schema.json'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """One kind of JSON document.

    Attributes:
        where: Which file or which command's output it is, as a sentence.
        type_of: Makes the type of its root, a dataclass or a TypedDict; imports what that takes.
        header: Keys before those of the root: name -> type.
        extra: Keys after them that are worked out when the document is written.
    """

    where: str
    type_of: Callable[[], Any]
    header: Callable[[], Mapping[str, Any]] = dict
    extra: Callable[[], Mapping[str, Any]] = dict


def names() -> list[str]:
    """The names of all documents, sorted."""
    return sorted(DOCUMENTS)


def committed(name: str) -> str:
    """The schema of a document as text, from the package's files.

    Raises:
        ValueError: There is no document of this name.
    """
    if name not in DOCUMENTS:
        raise ValueError(
            f'Expected the name of a document, got name={name!r}. Choose from: {", ".join(names())}.'
        )
    return importlib.resources.files('pipeline.schemas').joinpath(f'{name}{SUFFIX}').read_text('utf-8')


def generate(name: str) -> str:
    """The schema of a document as text, made from its type."""
    document = DOCUMENTS[name]
    root = document.type_of()
    made = _schema_of(_with_keys(root, document.header(), document.extra()))
    described = {**_described(root)['properties'], **_DESCRIPTIONS}
    for key, value in made['properties'].items():
        if key in described:
            value['description'] = described[key]
    about = _described(root)['description']
    found = {
        '$schema': DIALECT,
        'title': f'dp-corpus {name}',
        'description': f'{document.where} {about}'.strip(),
        **{key: value for key, value in made.items() if key not in ('title', 'description')},
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + '\n'


def _with_keys(root: Any, header: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
    """A TypedDict of the header, the root's fields and what is worked out beside them."""
    # Named in a variable: type checkers take no computed TypedDict.
    make: Any = typing.TypedDict
    return make(root.__name__, {**header, **typing.get_type_hints(root), **extra})


def _schema_of(kind: Any) -> dict[str, Any]:
    """pydantic's schema of what a type is written as, closed to other keys, with the docstrings' words."""
    import pydantic

    found = pydantic.TypeAdapter(kind).json_schema(mode='serialization')
    classes = {cls.__name__: cls for cls in _classes(kind)}
    for name, definition in found.get('$defs', {}).items():
        if name not in classes:  # an alias
            continue
        described = _described(classes[name])
        definition['description'] = described['description']
        for key, value in definition['properties'].items():
            if key in described['properties']:
                value['description'] = described['properties'][key]
    return _closed(found)


def _closed(node: Any) -> Any:
    """Without the titles that repeat the keys, and with objects of known keys closed to others."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key != 'title' or not isinstance(value, str)}
    for group in ('properties', '$defs'):
        if group in plain:
            plain[group] = {key: _closed(value) for key, value in plain[group].items()}
    found = {key: value if key in ('properties', '$defs') else _closed(value) for key, value in plain.items()}
    if 'properties' not in found:
        return found
    for value in found['properties'].values():
        value.pop('default', None)
    # A key is written whether or not a constructor has a default for it.
    return found | {'required': list(found['properties']), 'additionalProperties': False}


def _classes(kind: Any, seen: frozenset[Any] = frozenset()) -> set[Any]:
    """All dataclasses and TypedDicts that a type mentions, at any depth."""
    if kind in seen:
        return set()
    seen |= {kind}
    if isinstance(kind, typing.TypeAliasType):
        return _classes(kind.__value__, seen)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind).values()
        return {kind}.union(*(_classes(hint, seen) for hint in hints))
    # A literal's arguments are values.
    arguments = () if typing.get_origin(kind) is Literal else typing.get_args(kind)
    return set().union(*(_classes(argument, seen) for argument in arguments))


def _described(cls: Any) -> dict[str, Any]:
    """What a docstring says of a class and of its attributes."""
    text = re.sub(r'\n {4}', '\n', cls.__doc__ or '')
    about, _, rest = text.partition('\n\nAttributes:\n')
    # What follows the attributes, a sample, is not indented.
    attributes = re.split(r'\n(?=\S)', rest)[0]
    found = re.findall(r'^ {4}(\w+): (.*(?:\n {8}.*|\n(?= {8}))*)', attributes, re.MULTILINE)
    about = about.split('\n\nSample')[0]
    inherited: dict[str, str] = {}
    for base in types.get_original_bases(cls):
        if typing.is_typeddict(base):
            inherited |= _described(base)['properties']
    return {
        'description': ' '.join(about.split()),
        'properties': inherited | {name: ' '.join(words.split()) for name, words in found},
    }


_DESCRIPTIONS = {
    'schema': 'What kind of document this is.',
    'schema_version': 'Changes with every change that a reader has to know of.',
    'audience': 'Who may read it.',
    'ok': 'Whether nothing was found that should not be there.',
}


def _const(*values: object) -> Any:
    # By its name: type checkers take no computed literal.
    return vars(typing)['Literal'][values]


def _header(schema: str, version: int, *audiences: str) -> dict[str, Any]:
    return {'schema': _const(schema), 'schema_version': _const(version), 'audience': _const(*audiences)}


def _privacy_report() -> Any:
    from models.privacy import report

    return report.PrivacyReport


def _privacy_report_header() -> dict[str, Any]:
    from models.privacy import report

    return _header(
        report.PRIVACY_REPORT_SCHEMA, report.SCHEMA_VERSION, report.RELEASABLE, report.RESEARCH_ONLY
    )


def _restricted_report() -> Any:
    from models.privacy import report

    return report.RestrictedReport


def _restricted_report_header() -> dict[str, Any]:
    from models.privacy import report

    return _header(report.RESTRICTED_REPORT_SCHEMA, report.SCHEMA_VERSION, report.RESTRICTED)


def _cluster_comparison() -> Any:
    from pipeline import clusters

    return clusters.ClusterComparison


def _cluster_comparison_header() -> dict[str, Any]:
    from models.privacy import report
    from pipeline import clusters

    return _header(clusters.SCHEMA, clusters.SCHEMA_VERSION, report.RESTRICTED)


def _input_check() -> Any:
    from pipeline import input_check

    return input_check.InputCheck


def _input_check_header() -> dict[str, Any]:
    from models.privacy import report
    from pipeline import input_check

    return _header(input_check.SCHEMA, input_check.SCHEMA_VERSION, report.RESTRICTED)


def _leave_one_out() -> Any:
    from models.audits.leave_one_out import LeaveOneOut, Payment
    from pipeline.audit import LeaveOneOutAudit

    payment = _described_as(Payment, {'ok': bool})
    payments = types.GenericAlias(tuple, (payment, ...))
    worked_out = {'payments': payments, 'empirical_epsilon': float, 'ratio': float, 'ok': bool}
    batch = _described_as(LeaveOneOut, worked_out)
    return _described_as(LeaveOneOutAudit, {'batches': types.GenericAlias(tuple, (batch, ...))})


def _leave_one_out_header() -> dict[str, Any]:
    from models.privacy import report
    from pipeline import audit

    return _header(audit.LEAVE_ONE_OUT_SCHEMA, audit.SCHEMA_VERSION, report.RESTRICTED) | {'ok': bool}


def _reconstruction() -> Any:
    from models.audits.reconstruction import Reconstruction
    from pipeline.audit import ReconstructionAudit

    interval = tuple[float, float]
    worked_out = {
        'source_rate_95': interval,
        'holdout_rate_95': interval,
        'p_value': float,
        'conclusive': bool,
        'alarm_below': float,
    }
    return _described_as(ReconstructionAudit, {'result': _described_as(Reconstruction, worked_out)})


def _reconstruction_header() -> dict[str, Any]:
    from pipeline import audit

    return _header(audit.RECONSTRUCTION_SCHEMA, audit.SCHEMA_VERSION, audit.MADE_UP) | {'ok': bool}


def _described_as(cls: Any, changed: Mapping[str, Any]) -> Any:
    """A TypedDict with the docstring and the fields of a class, and some keys more or of other types."""
    made = _with_keys(cls, {}, changed)
    made.__doc__ = cls.__doc__
    return made


def _evaluation() -> Any:
    from pipeline.evaluation import evaluation

    return evaluation.Evaluation


def _evaluation_header() -> dict[str, Any]:
    from pipeline.evaluation import evaluation

    return _header(evaluation.SCHEMA, evaluation.SCHEMA_VERSION, evaluation.RESTRICTED, evaluation.SHAREABLE)


def _facts() -> Any:
    from pipeline.evaluation import facts

    return facts.InventedFacts


def _facts_header() -> dict[str, Any]:
    from pipeline.evaluation import facts

    return _header(facts.SCHEMA, facts.SCHEMA_VERSION, facts.AUDIENCE)


def _run_plan() -> Any:
    from pipeline.plan import RunPlan

    return RunPlan


def _tuning_plan() -> Any:
    from pipeline.tuning_plan import TuningPlan

    return TuningPlan


def _adapter() -> Any:
    from models.finetuning.adapter import AdapterCard

    return AdapterCard


def _adapter_header() -> dict[str, Any]:
    from models.finetuning import adapter

    return {'schema': _const(adapter.SCHEMA), 'schema_version': _const(adapter.SCHEMA_VERSION)}


def _batch_plan() -> Any:
    from models.batching import BatchPlan

    return BatchPlan


def _clustering() -> Any:
    from models.batching import Clustering

    return Clustering


def _centers() -> Any:
    from models.clustering.centers import Centers

    hints = typing.get_type_hints(Centers)
    make: Any = typing.TypedDict
    kept = {name: hint for name, hint in hints.items() if name != 'vectors'}
    made = make('Centers', kept | {'versions': Mapping[str, str]})
    made.__doc__ = Centers.__doc__
    return made


def _centers_header() -> dict[str, Any]:
    from models.clustering import centers

    return {'schema': _const(centers.SCHEMA), 'count': int, 'dimensions': int}


def _ledger(name: str) -> Callable[[], Any]:
    def type_of() -> Any:
        from pipeline.schemas import ledger

        return getattr(ledger, name)

    return type_of


def _export_header() -> dict[str, Any]:
    from pipeline.ledger.ledger import SCHEMA_VERSION

    return {'schema': _const('dp-corpus/ledger'), 'schema_version': _const(SCHEMA_VERSION)}


def _restricted_header() -> dict[str, Any]:
    from pipeline.ledger import released

    return {'audience': _const(released.RESTRICTED)}


class RunIdentity(typing.TypedDict):
    """What may not change between a run and its resumption, as digests, but for the run's public name.

    Attributes:
        run_id: Public name of the run.
        config: Of the settings that decide the output.
        input: Of the input's files.
        model: Of the model's files.
        code: Of this package and of the software that decides the output.
    """

    run_id: str
    config: str
    input: str
    model: str
    code: str


class FittedCenters(typing.TypedDict):
    """Centres that were fitted, without the centres themselves.

    Attributes:
        output: The folder that they are in.
        count: How many there are.
        embedder: Name of what embedded the texts.
        source: 'public'; or private texts, 'dp-k-means' for a cost and 'k-means' without a guarantee.
        rho: zCDP cost of the centres; 0 unless the source is 'dp-k-means'.
        fingerprint: SHA-256 of the centres and all that is known of them.
        corpus_fingerprint: SHA-256 of the public texts; null for private ones.
        corpus_texts: Number of the public texts; null for private ones.
    """

    output: str
    count: int
    embedder: str
    source: Literal['public', 'k-means', 'dp-k-means']
    rho: float
    fingerprint: str
    corpus_fingerprint: str | None
    corpus_texts: int | None


class Failure(typing.TypedDict):
    """Why a command did not do what it was asked to.

    Attributes:
        error: The error and its causes, for people.
        exit_code: What the command exits with.
    """

    error: str
    exit_code: int


DOCUMENTS: dict[str, Document] = {
    'privacy-report': Document(
        where='privacy_report.json in the corpus folder.',
        type_of=_privacy_report,
        header=_privacy_report_header,
    ),
    'restricted-report': Document(
        where='restricted_report.json in the work directory.',
        type_of=_restricted_report,
        header=_restricted_report_header,
    ),
    'leave-one-out-audit': Document(
        where='What `dp-corpus audit` writes.', type_of=_leave_one_out, header=_leave_one_out_header
    ),
    'reconstruction-audit': Document(
        where='What `dp-corpus audit` writes of made-up keys.',
        type_of=_reconstruction,
        header=_reconstruction_header,
    ),
    'cluster-comparison': Document(
        where='What `dp-corpus clusters` writes.',
        type_of=_cluster_comparison,
        header=_cluster_comparison_header,
    ),
    'input-check': Document(
        where='What `dp-corpus check --json` prints.',
        type_of=_input_check,
        header=_input_check_header,
    ),
    'evaluation': Document(
        where='What `dp-corpus evaluate` writes and prints with --json.',
        type_of=_evaluation,
        header=_evaluation_header,
    ),
    'invented-facts': Document(
        where='facts.json of `python -m pipeline.evaluation.facts`.', type_of=_facts, header=_facts_header
    ),
    'run-plan': Document(where='What `dp-corpus plan --json` prints.', type_of=_run_plan),
    'tuning-plan': Document(
        where='What `dp-corpus plan --method fine-tune --json` prints.', type_of=_tuning_plan
    ),
    'adapter': Document(
        where='adapter.json beside a released adapter.', type_of=_adapter, header=_adapter_header
    ),
    'batch-plan': Document(where='plan.json in the work directory.', type_of=_batch_plan),
    'clustering': Document(where='clustering.json in the work directory.', type_of=_clustering),
    'centers': Document(
        where='centers.json in a folder of centres.', type_of=_centers, header=_centers_header
    ),
    'ledger': Document(
        where='What `dp-corpus ledger export` writes.', type_of=_ledger('Export'), header=_export_header
    ),
    'ledger-restricted': Document(
        where='What `dp-corpus ledger export --restricted` writes.',
        type_of=_ledger('ExportOfCurator'),
        header=lambda: _export_header() | _restricted_header(),
    ),
    'ledger-accounts': Document(
        where='What `dp-corpus ledger show --json` prints.', type_of=_ledger('Accounts')
    ),
    'ledger-accounts-restricted': Document(
        where='What `dp-corpus ledger show --json --restricted` prints.',
        type_of=_ledger('AccountsOfCurator'),
        header=_restricted_header,
    ),
    'fitted-centers': Document(
        where='What `dp-corpus centers --json` prints.', type_of=lambda: FittedCenters
    ),
    'run': Document(where='run.json in the work directory.', type_of=lambda: RunIdentity),
    'failure': Document(where='What any command prints with --json when it fails.', type_of=lambda: Failure),
}
"""All documents, by name."""


if __name__ == '__main__':
    for each in names():
        pathlib.Path(__file__).with_name(f'{each}{SUFFIX}').write_text(generate(each), encoding='utf-8')
