"""Real records with labels, read from ../shared/data, and what benchmarks publicly say of them."""

import csv
import dataclasses
import json
import pathlib
import re
import tarfile
from collections.abc import Callable, Iterable

DATA = pathlib.Path(__file__).parents[3] / 'shared' / 'data'
Record = tuple[str, str]  # label and text


def _agnews(name: str) -> list[Record]:
    with open(DATA / 'agnews' / name, newline='', encoding='utf-8') as file:
        return [(label, f'{title}. {text}'.replace('\\', ' ')) for label, title, text in csv.reader(file)]


def _trec(name: str) -> list[Record]:
    """Questions are stored as tokens with spaces between them; these are undone as far as marks go."""
    lines = (DATA / 'trec' / name).read_text(encoding='utf-8').splitlines()
    pairs = (line.split(' ', 1) for line in lines)
    return [
        (head.split(':')[0], re.sub(r" (\?|,|\.|'s|'t|'re|'ll|'d|'m)(?=\s|$)", r'\1', text).strip())
        for head, text in pairs
    ]


def _mts_dialog(*names: str) -> list[Record]:
    rows: list[Record] = []
    for name in names:
        with open(DATA / 'mts_dialog' / f'MTS-Dialog-{name}.csv', newline='', encoding='utf-8') as file:
            rows += [(row['section_header'], row['section_text']) for row in csv.DictReader(file)]
    return rows


def _banking77(name: str) -> list[Record]:
    with open(DATA / 'banking77' / name, newline='', encoding='utf-8') as file:
        return [(row['category'], row['text']) for row in csv.DictReader(file)]


def _banking77_labels() -> dict[str, str]:
    """Names of the categories, with spaces in place of underscores."""
    file = DATA / 'banking77' / 'categories.json'
    names = json.loads(file.read_text(encoding='utf-8')) if file.is_file() else []
    return {name: name.replace('_', ' ').strip('?') for name in names}


def _imdb(part: str, of_each: int) -> list[Record]:
    """The first reviews of each label of a part of the archive."""
    rows: list[Record] = []
    found = {'pos': 0, 'neg': 0}
    with tarfile.open(DATA / 'imdb' / 'aclImdb.tar.gz') as archive:
        for member in archive:
            parts = pathlib.PurePath(member.name).parts
            label = parts[2] if len(parts) == 4 and parts[1] == part else ''
            if member.isfile() and found.get(label, of_each) < of_each:
                file = archive.extractfile(member)
                assert file is not None
                rows.append((label, file.read().decode('utf-8').replace('<br />', ' ')))
                found[label] += 1
                if sum(found.values()) == 2 * of_each:
                    break
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """Records with labels, and what is publicly said of them.

    Attributes:
        labels: The words for each label in prompts.
        description: The corpus in one line.
        max_prompt_tokens: Length of a prompt.
        train: The sensitive records.
        held_out: Records that the classifier is tested on.
    """

    labels: dict[str, str]
    description: str
    label_name: str
    text_name: str
    max_prompt_tokens: int
    train: Callable[[], list[Record]]
    held_out: Callable[[], list[Record]]


DATASETS = {
    'agnews': Dataset(
        labels={'1': 'World', '2': 'Sports', '3': 'Business', '4': 'Science and technology'},
        description='Short news items, one after another.',
        label_name='Section',
        text_name='News',
        max_prompt_tokens=112,
        train=lambda: _agnews('train_head.csv') + _agnews('train_more.csv'),
        held_out=lambda: _agnews('test.csv'),
    ),
    'trec': Dataset(
        labels={
            'ABBR': 'abbreviations', 'DESC': 'descriptions and reasons', 'ENTY': 'things',
            'HUM': 'people', 'LOC': 'places', 'NUM': 'numbers and dates',
        },
        description='Short quiz questions, one after another.',
        label_name='Asks for',
        text_name='Question',
        max_prompt_tokens=56,
        train=lambda: _trec('train.txt'),
        held_out=lambda: _trec('test.txt'),
    ),
    'mts_dialog': Dataset(
        labels={
            'FAM/SOCHX': 'Family and social history', 'GENHX': 'History of present illness',
            'PASTMEDICALHX': 'Past medical history', 'CC': 'Chief complaint',
        },
        description="Sections of doctors' notes on patients, one after another.",
        label_name='Section',
        text_name='Note',
        max_prompt_tokens=144,
        train=lambda: _mts_dialog('TrainingSet'),
        held_out=lambda: _mts_dialog(
            'ValidationSet', 'TestSet-1-MEDIQA-Chat-2023', 'TestSet-2-MEDIQA-Sum-2023'
        ),
    ),
    'imdb': Dataset(
        labels={'pos': 'Favourable', 'neg': 'Unfavourable'},
        description="Viewers' reviews of films, one after another.",
        label_name='Verdict',
        text_name='Review',
        max_prompt_tokens=144,
        train=lambda: _imdb('train', 10_000),
        held_out=lambda: _imdb('test', 600),
    ),
    'banking77': Dataset(
        labels=_banking77_labels(),
        description='Questions that customers of a bank ask its support, one after another.',
        label_name='About',
        text_name='Question',
        max_prompt_tokens=64,
        train=lambda: _banking77('train.csv'),
        held_out=lambda: _banking77('test.csv'),
    ),
}  # fmt: skip


def sample(
    records: Iterable[Record], labels: Iterable[str], limit: int | None = None, seed: int = 0
) -> list[Record]:
    """Records of the declared labels, every n-th of them from the seed on, so that about `limit` are left."""
    known = [record for record in records if record[0] in set(labels)]
    if not limit:
        return known
    step = max(1, len(known) // limit)
    return known[seed % step :: step][:limit]
