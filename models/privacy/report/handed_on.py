"""What a report says to a run that its release goes into: that release, and all that went into it."""

import ast
import hashlib
import json
import re
from typing import Any

from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import RhoStage, SampledGaussianStage
from models.privacy.report import codec, earlier_releases, prediction
from models.privacy.report.released import PrivacyReport

# How reports of earlier versions name the run that trained the adapter of their texts.
_TRAINED = re.compile(
    r'Covered: the run (?P<run>\'.*?\'|".*?"), which (?:was charged to no ledger|its ledger charged to '
    r"'(?P<dataset>.*)' as run (?P<number>[\d,]+))\. It trained the adapter"
)


def releases_of(text: str) -> tuple[EarlierRelease, ...]:
    """The release that a report is of, and all that went into it; first the former.

    A report of an earlier version has no list of what went in. Its own cost counts, and what went into it
    is not known.

    Args:
        text: The report, as its run wrote it.

    Raises:
        ValueError: It is of a later version, states no (epsilon, delta), or contradicts itself.
        TypeError: A value is of another type. So `LookupError` for one that is missing.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    found = json.loads(text)
    if found['schema_version'] >= codec.SCHEMA_VERSION:
        return PrivacyReport.from_json(text).handed_on(digest)
    return (_of_earlier_version(found, digest),)


def _of_earlier_version(found: dict[str, Any], digest: str) -> EarlierRelease:
    mechanism, entry = found['mechanism'], found['ledger']
    stages = codec.decoded(tuple[RhoStage | SampledGaussianStage, ...], found['stages'], 'stages')
    release: dict[str, Any] = {
        'run_id': str(found['run_id']),
        'dataset': None if entry is None else str(entry['dataset']),
        'run_number': None if entry is None else int(entry['run_number']),
        'charged_rho': None if entry is None else float(entry['rho']),
    }
    trained = _TRAINED.match(found['data_accesses'][0])
    if trained is not None:
        number = trained['number']
        release |= {
            'run_id': str(ast.literal_eval(trained['run'])),
            'dataset': trained['dataset'],
            'run_number': None if number is None else int(number.replace(',', '')),
            'charged_rho': None,
            'sampled_by': str(found['run_id']),
        }
    earlier = EarlierRelease(
        **release,
        method=earlier_releases.method_of(mechanism),
        unit=prediction.unit_of(mechanism),
        epsilon=float(found['epsilon']),
        delta=float(found['delta']),
        costs=earlier_releases.costs_of(mechanism, stages),
        identity=digest,
        told_by='report',
        inputs_known=False,
    )
    earlier_releases.check([earlier])
    return earlier
