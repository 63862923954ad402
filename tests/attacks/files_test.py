"""Files that somebody edited: each is refused by name, none runs anything, and no path leaves its folder."""

import json
import pathlib
import pickle
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from models.batch_plan import BatchPlan, Clustering
from models.bundled import FOLDER as BUNDLED
from models.clustering.centers import Centers
from models.decoders.gemma import architectures
from models.decoders.gemma.formats import GGUF, HUB
from models.evolution import generation
from models.finetuning import adapter as adapters
from models.finetuning.adapter import AdapterCard
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.run import folders
from tests.pipeline.ledger import machine_test
from transforms import batch_files, run_files
from transforms.evolve import files as round_files
from transforms.read import RecordFields, check_input

WRONG: tuple[Any, ...] = (None, 'x', -1, 10**400, [], [[]], {}, {'x': 1}, True, float('nan'), '../../x')


def edits(document: Any) -> Iterator[Any]:
    """The document with one value replaced, left out or put in, everywhere and in every way."""
    if isinstance(document, dict):
        yield document | {'unknown': 1}
        for name, value in document.items():
            yield {key: of for key, of in document.items() if key != name}
            yield from (document | {name: wrong} for wrong in WRONG if wrong != value or wrong is not value)
            yield from (document | {name: edited} for edited in edits(value))
    elif isinstance(document, list) and document:
        yield document[1:]
        for place, value in enumerate(document[:2]):
            yield from (
                document[:place] + [edited] + document[place + 1 :] for edited in (*WRONG, *edits(value))
            )


def refusals_of(read: Callable[[str], Any], text: str) -> list[str]:
    """Faults of a reader over every edit of a file: errors that are not of the contract."""
    document = json.loads(text)
    texts = ['', '{', '[]', 'null', '[' * 100_000, *(json.dumps(edited) for edited in edits(document))]
    found = []
    for edited in texts:
        try:
            read(edited)
        except ValueError as error:
            if type(error) is not ValueError or not str(error).startswith('Expected '):
                found.append(f'{type(error).__name__}: {str(error)[:80]} for {edited[:120]}')
        except Exception as error:  # noqa: BLE001
            found.append(f'{type(error).__name__}: {str(error)[:80]} for {edited[:120]}')
    return found


def in_file(path: pathlib.Path, read: Callable[[], Any]) -> Callable[[str], Any]:
    """A reader of a text that is put at a path first."""

    def reading(text: str) -> Any:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return read()

    return reading


PLAN = BatchPlan(labels=('a', 'b'), batches_per_group=(1, 2), noisy_counts=(4, 5), contexts_rho=0.1)
CLUSTERING = Clustering(kept=((0,), (1,)), noisy_counts=((5, 0), (0, 7)), rho=0.2)
BATCH = [
    {
        'text': 'x', 'label': 'a', 'private_tokens': 1, 'public_tokens': 2, 'truncated': False,
        'batch_id': '0000-000000', 'index_in_batch': 0,
    }
]  # fmt: skip
SAMPLED = [{'name': 'n', 'text': 't', 'label': None, 'parents': [], 'tokens': 1, 'truncated': False}]


@pytest.mark.parametrize(
    'name',
    ['adapter', 'plan', 'clustering', 'centers', 'batch', 'sampled', 'candidates', 'votes'],
)
def test_every_edit_of_a_file_is_read_or_refused_by_name(tmp_path: pathlib.Path, name: str) -> None:
    batch = '0000-000000'
    centers = tmp_path / 'centers'
    if name == 'centers':
        shutil.copytree(BUNDLED / 'centers', centers)
    votes = generation.votes_to_json(1, (None,), np.ones((1, 2), np.int64), 3.0)
    texts = generation.candidates_to_json(1, (generation.Candidate(name='n', text='x', label=None),))
    read, text = {
        'adapter': (AdapterCard.from_json, machine_test._known_card().to_json()),
        'plan': (BatchPlan.from_json, PLAN.to_json()),
        'clustering': (Clustering.from_json, CLUSTERING.to_json()),
        'centers': (
            in_file(centers / 'centers.json', lambda: Centers.read(centers)),
            (BUNDLED / 'centers' / 'centers.json').read_text(),
        ),
        'batch': (
            in_file(
                tmp_path / 'batches' / f'{batch}.json',
                lambda: batch_files.read_batch(str(tmp_path), batch, batch_files.example_of),
            ),
            json.dumps(BATCH),
        ),
        'sampled': (
            in_file(
                tmp_path / 'batches' / f'{batch}.json', lambda: round_files.read_sampled(str(tmp_path), batch)
            ),
            json.dumps(SAMPLED),
        ),
        'candidates': (lambda text: generation.candidates_from_json(text, 'candidates-01.json'), texts),
        'votes': (lambda text: generation.votes_from_json(text, 'votes-01.json'), votes),
    }[name]  # type: ignore[attr-defined]
    read(text)
    assert refusals_of(read, text) == []


def test_a_reader_that_trusts_its_file_is_caught() -> None:
    assert refusals_of(lambda text: BatchPlan(**json.loads(text)), PLAN.to_json())


# ------------------------------------------------------------------ pickles and paths


class Bomb:
    """A call that a pickle makes when it is opened."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return pathlib.Path.touch, (self.path,)


def test_a_pickle_is_never_opened(tmp_path: pathlib.Path) -> None:
    mark = tmp_path / 'opened'
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists(), 'the bomb is none'
    mark.unlink()
    centers, rounds = tmp_path / 'centers', tmp_path / run_files.ROUNDS_FOLDER
    shutil.copytree(BUNDLED / 'centers', centers)
    (centers / 'centers.safetensors').write_bytes(bomb)
    rounds.mkdir()
    (rounds / 'candidates-01.safetensors').write_bytes(bomb)
    weights = tmp_path / 'weights'
    weights.mkdir()
    (weights / 'model.safetensors').write_bytes(bomb)
    (weights / 'pytorch_model.bin').write_bytes(bomb)
    (tmp_path / 'model.gguf').write_bytes(bomb)
    card = machine_test._known_card()
    architecture = architectures.ARCHITECTURES['gemma3-270m']
    for read in (
        lambda: Centers.read(centers),
        lambda: round_files.read_vectors(str(tmp_path), 1),
        lambda: adapters.from_bytes(bomb, 'bundled', 2),
        lambda: adapters.check_factors(card, bomb),
        lambda: HUB.check(architecture, weights),
        lambda: GGUF.check(architecture, tmp_path / 'model.gguf'),
    ):
        with pytest.raises(ValueError, match='Expected'):
            read()
    assert not mark.exists()


@pytest.mark.parametrize('name', ['../secret.arrow', '/etc/passwd', '..', ''])
def test_a_saved_data_set_names_no_file_elsewhere(tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / 'set'
    folder.mkdir()
    (folder / 'state.json').write_text(json.dumps({'_data_files': [{'filename': name}]}))
    (tmp_path / 'secret.arrow').write_bytes(b'secret')
    with pytest.raises(ValueError, match='what lies in its own folder'):
        check_input(f'hf://{folder}', RecordFields(text='text'))
    (folder / 'state.json').unlink()
    (folder / 'dataset_dict.json').write_text(json.dumps({'splits': [name or '../set']}))
    with pytest.raises(ValueError, match='what lies in its own folder'):
        check_input(f'hf://{folder}', RecordFields(text='text'))


# ------------------------------------------------------------------ the work directory


def test_an_edited_record_of_a_run_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'in.jsonl').write_text('{"text": "x"}\n')
    run = job_config(
        input=str(tmp_path / 'in.jsonl'), output=str(tmp_path / 'out'), delta=1e-6, epsilon=0.5,
        aggregate='difference', accounting='worst-case', dtype='float32',
    )  # fmt: skip
    folders.prepare(methods.solve(run, launch=True))
    kept = tmp_path / 'out.curator' / run_files.RUN
    whole = json.loads(kept.read_text())
    for edited in ('', '[]', '7', '[' * 100_000, json.dumps(whole | {'config': 'other'})):
        kept.write_text(edited)
        with pytest.raises((ValueError, FileExistsError), match=r'run\.json|changed=') as refused:
            folders.prepare(methods.solve(run, launch=True))
        assert str(refused.value).startswith('Expected ')
    kept.write_text(json.dumps(whole))
    folders.prepare(methods.solve(run, launch=True))
