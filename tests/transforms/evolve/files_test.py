"""Files of the rounds: written lists stay, damaged ones are named and nothing of them is quoted."""

import json
import pathlib

import pytest

from models.evolution.generation import candidates_to_json
from tests.models.evolution import made_up
from tests.models.evolution.made_up import UNKNOWN, WordEmbedder
from transforms.batch_files import batch_path
from transforms.evolve import files
from transforms.evolve.rounds import write_list
from transforms.run_files import BATCHES_FOLDER, ROUNDS_FOLDER


@pytest.fixture
def rounds(work_dir: str) -> str:
    for folder in (ROUNDS_FOLDER, BATCHES_FOLDER):
        (pathlib.Path(work_dir) / folder).mkdir()
    return work_dir


def write_batches(work_dir: str, texts: list[str]) -> None:
    """Answers of every request of the first round."""
    settings = made_up.settings()
    waiting = iter(texts)
    for batch_id, count in settings.batches_of(1):
        rows = [
            {
                'name': f'{batch_id}-{place:04d}', 'text': next(waiting, None),
                'label': settings.labels[batch_id.group], 'parents': [], 'tokens': 9, 'truncated': False,
            }
            for place in range(count)
        ]  # fmt: skip
        pathlib.Path(batch_path(work_dir, str(batch_id))).write_text(json.dumps(rows))


def test_a_list_is_written_once(rounds: str) -> None:
    texts = [*made_up.texts_of('billing', 5), *made_up.texts_of('delivery', 3)]
    write_batches(rounds, texts)
    write_list(made_up.settings(), rounds, 1, WordEmbedder())
    found = files.read_candidates(rounds, 1)
    assert [of.text for of in found] == texts
    assert (files.read_vectors(rounds, 1) == WordEmbedder().embed(texts)).all()
    # A repeated step reads the same, whatever the batches are meanwhile.
    write_batches(rounds, texts[:2])
    write_list(made_up.settings(), rounds, 1, WordEmbedder())
    assert files.read_candidates(rounds, 1) == found


def test_a_first_list_without_texts_is_refused(rounds: str) -> None:
    write_batches(rounds, [UNKNOWN])
    with pytest.raises(ValueError, match='Expected texts to vote on in round 1, got none') as failed:
        write_list(made_up.settings(), rounds, 1, WordEmbedder())
    assert UNKNOWN not in str(failed.value)


def test_a_given_list_is_the_first(rounds: str) -> None:
    texts = made_up.candidates()
    write_list(made_up.settings(start=(*texts, texts[0])), rounds, 1, WordEmbedder())
    assert files.read_candidates(rounds, 1) == texts


@pytest.mark.parametrize('data', ['', '[{"text": "not released', '[{"text": "not released"}]', '[3]', '{}'])
def test_a_damaged_batch_is_named_without_its_text(rounds: str, data: str) -> None:
    pathlib.Path(batch_path(rounds, '0000-000001')).write_text(data)
    with pytest.raises(ValueError, match='damaged file=batches/0000-000001.json') as failed:
        files.read_sampled(rounds, '0000-000001')
    assert 'not released' not in str(failed.value) and failed.value.__context__ is None


def test_a_damaged_list_is_named(rounds: str) -> None:
    whole = candidates_to_json(1, made_up.candidates())
    pathlib.Path(files.round_path(rounds, files.candidates_name(1))).write_text(whole[:-40])
    with pytest.raises(ValueError, match="file='candidates-01.json'") as failed:
        files.read_candidates(rounds, 1)
    assert 'invoice' not in str(failed.value)
