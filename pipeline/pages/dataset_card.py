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

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from models.privacy import report
from models.privacy.report import earlier_releases, text_votes, tuning
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


_TAGS: dict[report.Statement, list[str]] = {
    'differential privacy': ['synthetic', 'differential-privacy'],
    # Readers take that tag for a guarantee in advance.
    'ex-post': ['synthetic'],
}
_PROMISES: dict[report.Statement, str] = {
    'differential privacy': (
        'The records stay with the curator; what the texts can tell about any one {unit} is bounded.'
    ),
    'ex-post': (
        'The records stay with the curator, who also holds the figure that says, after the fact, what these '
        'texts can tell about any one {unit}.'
    ),
}


_ADAPTER = (
    '**Adapter.** The texts were sampled from an adapter that was trained with differential privacy. '
    'The guarantee is of the adapter: as many texts as anyone likes may be sampled from it, for free. Where '
    'an earlier run trained it, `adapter_card.json` says which one, and for which records.'
)

_VOTED = (
    '**Votes.** Each record said which texts of a public list it is most like, and noise was added to the '
    'counts. The folder `rounds` has every list and its noisy votes: choosing other texts from them, or '
    'sampling further ones like them, costs nothing.'
)


def render_adapter_card(privacy_report: report.PrivacyReport) -> str:
    """The card of a run that left an adapter and no text, as Markdown with the model hub's YAML header.

    Args:
        privacy_report: The run's releasable report; the card shows nothing beyond it.
    """
    title, settings = f'Adapter {privacy_report.run_id}', privacy_report.settings
    is_of_factors = settings['lora_rank'] is not None
    kind = f'A low-rank adapter, of rank {settings["lora_rank"]}'
    if not is_of_factors:
        kind = 'An adapter of all weights'
    header = {
        'model_name': title,
        'tags': [*(['lora'] if is_of_factors else []), 'differential-privacy'],
        'pipeline_tag': 'text-generation',
    }
    origin = settings.get('model_origin')
    parts = [
        '---\n' + yaml.safe_dump(header, sort_keys=False, allow_unicode=True) + '---',
        f'# {_escape(title)}',
        f'{kind}, of the model {_escape(str(settings["model"]))}. It was trained on sensitive records with '
        'differential privacy, to write texts like theirs. The records stay with the curator; what the '
        f'adapter, and any text of it, can tell about any one {privacy_report.unit_noun} is bounded.',
        f'> {_escape(privacy_report.guarantee)}',
        *([f'**Model.** {_escape(str(origin))}.'] if origin else []),
        *_account(privacy_report),
        '## Sample texts',
        '```\n'
        f'dp-corpus generate --adapter path/to/this/folder --model {settings["model"]} '
        '--examples-per-label 1000 --output texts\n'
        '```',
        'Texts cost nothing, however many there are: they tell of the records what the adapter tells. '
        'Prompts and labels are those that it was trained with.',
        '## Files',
        _table(
            ('File', 'Content'),
            [
                (
                    f'`{ADAPTER_FOLDER}/{ADAPTER_TENSORS}`',
                    'The factors, float32.' if is_of_factors else 'The difference, float32.',
                ),
                (
                    f'`{ADAPTER_FOLDER}/{ADAPTER_CARD}`',
                    'Which weights they are added to, with their SHA-256, the guarantee, and the prompts and '
                    'labels.',
                ),
                ('`privacy_report.json`, `privacy_report.html`', 'The whole account of the guarantee.'),
            ],
        ),
        *_mix(privacy_report),
        *_limits(privacy_report),
    ]
    return '\n\n'.join(parts) + '\n'


def render_card(
    privacy_report: report.PrivacyReport,
    *,
    columns: Mapping[str, tuple[str, str]],
    title: str | None = None,
    languages: Sequence[str] = (),
    license_name: str | None = None,
) -> str:
    """The card as Markdown with the dataset hub's YAML header.

    Args:
        privacy_report: The run's releasable report; the card shows nothing beyond it.
        columns: Type and meaning of each column of the corpus, in the order of the files.
        title: Heading; None makes one from the run id.
        languages: ISO 639 codes of the text ('en'), if known.
        license_name: The hub's identifier of a licence ('cc-by-4.0'), if one is granted.
    """
    title = title or f'Synthetic corpus {privacy_report.run_id}'
    header: dict[str, Any] = {'pretty_name': title}
    if languages:
        header['language'] = list(languages)
    if license_name is not None:
        header['license'] = license_name
    header |= {
        'size_categories': [size_category(privacy_report.corpus.examples)],
        'task_categories': ['text-generation'],
        'tags': _TAGS[privacy_report.statement],
        'configs': [
            {'config_name': 'default', 'data_files': [{'split': 'train', 'path': DATA_FILES}]},
        ],
    }
    corpus = privacy_report.corpus
    is_tuned = tuning.is_of_tuning(privacy_report.mechanism)
    of_texts = text_votes.is_of_text_votes(privacy_report.mechanism)
    unit, origin = privacy_report.unit_noun, privacy_report.settings.get('model_origin')
    parts = [
        '---\n' + yaml.safe_dump(header, sort_keys=False, allow_unicode=True) + '---',
        f'# {_escape(title)}',
        f'{corpus.examples:,} synthetic texts, {_origin(privacy_report)}. '
        + _PROMISES[privacy_report.statement].format(unit=unit),
        f'> {_escape(privacy_report.guarantee)}',
        *([f'**Model.** {_escape(str(origin))}.'] if origin else []),
        *([_ADAPTER] if is_tuned else []),
        *([_VOTED] if of_texts else []),
        *_account(privacy_report),
        '## Load it',
        '```python\n'
        'import datasets\n'
        "corpus = datasets.load_dataset('path/to/this/folder', split='train')\n"
        '\n'
        'import pandas\n'
        f"corpus = pandas.read_parquet('path/to/this/folder/{DATA_FOLDER}')\n"
        '```',
        f'Give pandas the `{DATA_FOLDER}` folder, where nothing but Parquet lies.',
        '## Columns',
        _table(
            ('Column', 'Type', 'Meaning'),
            [(f'`{name}`', kind, meaning) for name, (kind, meaning) in columns.items()],
        ),
        f'{corpus.truncated:,} texts are truncated. Leaving them out costs no privacy, nor does any other '
        'selection that looks at the corpus alone.',
        *([] if of_texts else ['## Labels', _labels(privacy_report.plan, unit, is_tuned=is_tuned)]),
        *_limits(privacy_report),
    ]
    return '\n\n'.join(parts) + '\n'


def _origin(privacy_report: report.PrivacyReport) -> str:
    """Who wrote the texts, and what it saw of the records."""
    if text_votes.is_of_text_votes(privacy_report.mechanism):
        return 'chosen by the noisy votes of sensitive records'
    return 'generated by a language model that saw sensitive records'


def _account(privacy_report: report.PrivacyReport) -> list[str]:
    """Whose privacy, at which cost, and where to read more."""
    together = privacy_report.covered_together
    went_in = (privacy_report.covered_with_releases or '').removesuffix('.') or earlier_releases.listed(
        privacy_report.releases
    )
    return [
        f'**Unit of privacy.** {_escape(privacy_report.unit_of_privacy)}',
        _escape(privacy_report.delta_relation),
        *([f'**Accounting.** {_escape(privacy_report.orders)}'] if privacy_report.orders else []),
        *([f'**All runs on these records.** {_escape(together)}'] if together else []),
        *([f'**Releases that went in.** {_escape(went_in)}.'] if went_in else []),
        'The whole account, with every setting and a way to check the arithmetic, is in '
        '[privacy_report.html](privacy_report.html) and, for programs, '
        '[privacy_report.json](privacy_report.json).',
    ]


def _mix(privacy_report: report.PrivacyReport) -> list[str]:
    """The released mix of labels; nothing where none was."""
    if privacy_report.plan[0].noisy_count is None:
        return []
    return [
        '## Labels',
        'Texts have the labels in the shares of these noisy counts, unless `--label-mix` asks for others.',
        _labels(privacy_report.plan, privacy_report.unit_noun, is_tuned=True),
    ]


def _limits(privacy_report: report.PrivacyReport) -> list[str]:
    return [
        '## What the guarantee does not say',
        '\n'.join(f'- {_escape(line)}' for line in (*privacy_report.limits, *privacy_report.not_covered)),
    ]


def size_category(examples: int) -> str:
    """The hub's size category.

    >>> size_category(96), size_category(1000), size_category(5 * 10**9)
    ('n<1K', '1K<n<10K', 'n>1B')
    """
    return next((name for limit, name in _SIZE_LIMITS if examples < limit), 'n>1B')


def _labels(plan: Sequence[report.GroupPlan], unit: str, *, is_tuned: bool) -> str:
    if len(plan) == 1 and plan[0].label is None:
        if is_tuned:
            return 'None: the column is null.'
        return f'None: the column is null. {plan[0].batches:,} batches were planned, and each was released.'
    rows = report.totals_by_label(plan)
    columns = [
        ('Label', [_escape(row.name) for row in rows]),
        *([('Batches', [f'{row.batches:,}' for row in rows])] if any(row.batches for row in rows) else []),
    ]
    if plan[0].cluster is not None:
        columns.insert(1, ('Clusters', [f'{row.groups:,}' for row in rows]))
    if plan[0].noisy_count is not None:
        columns.append((f'Noisy count of {unit}s', [f'{row.noisy_count:,}' for row in rows]))
    return _table([head for head, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    # At a line's start these would make a heading, a list or a quotation; inside, they mark up.
    text = re.sub(r'([\\`*_\[\]<>|#~$&{}])', r'\\\1', ' '.join(text.split()))
    return re.sub(r'^([-+]|\d+[.)])', r'\\\1', text)
