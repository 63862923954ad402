"""A release's README.md: what is in it, the guarantee, and how to load it.

The folder is laid out so that the usual readers find the rows and nothing else::

    README.md                                this card; its header tells `datasets` what to read
    privacy_report.json, privacy_report.html
    adapter/                                 of fine-tuning; alone where no text was asked for
    rounds/                                  of votes on whole texts: every list, and the noisy votes
    data/train-00000-of-00008.parquet …      alone in their folder

The shards have a folder to themselves because pandas and pyarrow take every file below
the folder they are given for Parquet, unless its name starts with a dot or underscore.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from models.privacy import report
from models.privacy.report import words
from pipeline.pages import page
from transforms.run_files import ADAPTER_CARD, ADAPTER_FOLDER, ADAPTER_TENSORS, DATA_FOLDER

CARD_NAME = 'README.md'
DATA_FILES = f'{DATA_FOLDER}/train-*.parquet'

_SIZE_LIMITS = (
    (10**3, 'n<1K'),
    (10**4, '1K<n<10K'),
    (10**5, '10K<n<100K'),
    (10**6, '100K<n<1M'),
    (10**7, '1M<n<10M'),
    (10**8, '10M<n<100M'),
    (10**9, '100M<n<1B'),
)


def render_adapter_card(privacy_report: report.PrivacyReport) -> str:
    """The card of a run that left an adapter and no text, as Markdown with the model hub's YAML header."""
    title = f'Adapter {privacy_report.run_id}'
    is_of_factors = privacy_report.settings['lora_rank'] is not None
    header = {
        'model_name': title,
        'tags': [*(['lora'] if is_of_factors else []), 'differential-privacy'],
        'pipeline_tag': 'text-generation',
    }
    return _render(privacy_report, header, title, {})


def render_card(
    privacy_report: report.PrivacyReport,
    *,
    columns: Mapping[str, tuple[str, str]],
    title: str | None = None,
    languages: Sequence[str] = (),
    license_name: str | None = None,
) -> str:
    """The card as Markdown with the dataset hub's YAML header."""
    title = title or f'Synthetic corpus {privacy_report.run_id}'
    header: dict[str, Any] = {'pretty_name': title}
    if languages:
        header['language'] = list(languages)
    if license_name is not None:
        header['license'] = license_name
    # Readers take that tag for a guarantee in advance.
    is_private = privacy_report.statement == 'differential privacy'
    header |= {
        'size_categories': [size_category(privacy_report.corpus.examples)],
        'task_categories': ['text-generation'],
        'tags': ['synthetic', *(['differential-privacy'] if is_private else [])],
        'configs': [
            {'config_name': 'default', 'data_files': [{'split': 'train', 'path': DATA_FILES}]},
        ],
    }
    return _render(privacy_report, header, title, columns)


def _render(
    privacy_report: report.PrivacyReport,
    header: Mapping[str, Any],
    title: str,
    columns: Mapping[str, tuple[str, str]],
) -> str:
    return page.render_plain(
        f'{privacy_report.method.kind}/card.md.jinja',
        report=privacy_report,
        words=words.sections(privacy_report),
        totals=report.totals_by_label(privacy_report.plan),
        header=yaml.safe_dump(dict(header), sort_keys=False, allow_unicode=True),
        title=title,
        columns=[(f'`{name}`', kind, meaning) for name, (kind, meaning) in columns.items()],
        data_folder=DATA_FOLDER,
        adapter_folder=ADAPTER_FOLDER,
        adapter_tensors=ADAPTER_TENSORS,
        adapter_card=ADAPTER_CARD,
    )


def size_category(examples: int) -> str:
    """The hub's size category.

    >>> size_category(96), size_category(1000), size_category(5 * 10**9)
    ('n<1K', '1K<n<10K', 'n>1B')
    """
    return next((name for limit, name in _SIZE_LIMITS if examples < limit), 'n>1B')
