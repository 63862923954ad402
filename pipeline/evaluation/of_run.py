"""The real texts beside a run's corpus, found by the curator's folder of the run where no flag names any."""

import dataclasses
import itertools
import pathlib
import tomllib
from typing import Any

from pipeline.evaluation.settings import EvaluationSettings
from transforms import places
from transforms.run_files import SPLIT_KEY, SPLIT_RECORDS, SPLIT_TEST

# Settings of a run that say how its records are written.
_OF_COLUMNS = ('text_field', 'label_field', 'attributes', 'unit_field', 'delimiter', 'encoding', 'quoting')


def completed(corpus: str, settings: EvaluationSettings) -> EvaluationSettings:
    """Settings of an evaluation with the records and the test part of the run that wrote a corpus.

    The page then goes into a new folder of the curator's, unless another one is given. Nothing is changed
    where a flag names real texts, or where no test part of the run is known.
    """
    config = pathlib.Path(f'{corpus.rstrip("/")}.curator') / 'config.toml'
    if settings.records is not None or settings.test is not None or not config.is_file():
        return settings
    of_run: dict[str, Any] = tomllib.loads(config.read_text(encoding='utf-8'))
    test = None if of_run.get('input') is None else test_part(of_run['input'])
    if test is None:
        return settings
    found: dict[str, Any] = {'records': of_run['input'], 'test': test}
    for name in _OF_COLUMNS:
        default = EvaluationSettings.__dataclass_fields__[name].default
        if name in of_run and getattr(settings, name) == default:
            value = of_run[name]
            found[name] = tuple(value) if isinstance(value, list) else value
    if found.get('attributes'):
        found.pop('label_field', None)
    if settings.output is None:
        names = itertools.chain(('evaluation',), map('evaluation-{}'.format, itertools.count(2)))
        found['output'] = str(next(path for name in names if not (path := config.parent / name).exists()))
    return dataclasses.replace(settings, **found)


def test_part(records: str) -> str | None:
    """The test part beside the records of `dp-corpus split`; None where they are of nowhere else."""
    patterns = places.split_patterns(records)
    folders = {pathlib.Path(pattern).parent for pattern in patterns}
    if len(folders) != 1 or places.is_database(records) or '://' in records:
        return None
    folder = folders.pop()
    if folder.name != SPLIT_RECORDS or not (folder.parent / SPLIT_KEY).is_file():
        return None
    return ','.join(str(folder.parent / SPLIT_TEST / pathlib.Path(pattern).name) for pattern in patterns)
