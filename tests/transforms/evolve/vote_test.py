"""Votes of shares of units: against their slow twin; drawn once; nobody moves another's."""

import collections
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

from models.clustering import embedder
from models.evolution.generation import candidates_to_json
from models.evolution.settings import EvolutionSettings
from models.privacy import text_votes
from models.privacy.text_votes import TextVoteParams
from tests.models.evolution import made_up
from tests.oracles import clustering as slow_similarities
from tests.oracles import text_votes as slow
from transforms.durable import write_file
from transforms.evolve import vote
from transforms.evolve.embed import Shard
from transforms.evolve.files import read_generation, round_path, vectors_path, vectors_to_bytes, votes_name
from transforms.run_files import ROUNDS_FOLDER


def unit_rows(number: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((number, 6))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def settings(nearest: int = 2) -> EvolutionSettings:
    params = TextVoteParams(rounds=1, noise_scale=2.0, nearest=nearest, unit='user', examples_per_context=4)
    return made_up.settings(params=params)


def some_shard(units: int = 30, seed: int = 0) -> Shard:
    """Units of one to four records, some with records of which the embedder knows nothing."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, units)
    vectors = unit_rows(counts.sum(), seed)
    vectors[rng.random(len(vectors)) < 0.2] = 0
    vectors[0], vectors[-1] = np.nan, np.inf
    groups = rng.integers(0, 2, units)
    return (
        vectors,
        np.repeat(np.arange(units, dtype=np.int32), counts),
        np.repeat(groups.astype(np.int32), counts),
    )


def unit_rows_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of length 1 to the last bit of float32, as they are compared."""
    return embedder.unit_rows(np.stack(rows))


def slow_table(shard: Shard, candidates: np.ndarray, nearest: int) -> np.ndarray:
    """One record at a time, in whole numbers."""
    named, group_of = collections.defaultdict(list), {}
    for vector, unit, group in zip(*shard, strict=True):
        group_of[unit] = group
        if np.isfinite(vector).all() and vector.any():
            unit_vector, *others = unit_rows_of([vector, *candidates])
            similarities = [slow_similarities.similarity(unit_vector, other) for other in others]
            named[unit].append(slow.nearest(similarities, nearest))
    table = np.zeros((2, len(candidates)), np.int64)
    for unit, of_records in named.items():
        for candidate, quanta in slow.votes_of_unit(of_records, text_votes.QUANTA_PER_VOTE).items():
            table[group_of[unit], candidate] += quanta
    return table


@pytest.mark.parametrize('nearest', [1, 2, 5, 40])
def test_votes_are_those_of_the_slow_twin(nearest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = unit_rows(11, 7)
    candidates[4] = candidates[2]  # every vote goes to the first of both
    for seed in range(3):
        shard = some_shard(seed=seed)
        expected = slow_table(shard, candidates, nearest)
        assert (vote.votes_of_shard(shard, candidates, settings(nearest)) == expected).all()
        # Few at a time
        monkeypatch.setattr(vote, '_ROWS', 3)
        assert (vote.votes_of_shard(shard, candidates, settings(nearest)) == expected).all()
    assert nearest > 1 or not expected[:, 4].any()


def test_a_neighbour_moves_nobodys_vote_and_has_one_at_the_most() -> None:
    vectors, units, groups = some_shard()
    candidates = unit_rows(11, 7)
    whole = vote.votes_of_shard((vectors, units, groups), candidates, settings())
    for unit in range(30):
        own, others = units == unit, units != unit
        without = vote.votes_of_shard(
            (vectors[others], units[others], groups[others]), candidates, settings()
        )
        alone = vote.votes_of_shard((vectors[own], units[own], groups[own]), candidates, settings())
        assert (whole - without == alone).all()
        assert np.square(alone).sum() <= text_votes.QUANTA_PER_VOTE**2
        assert not alone[1 - groups[own][0]].any()


def test_records_that_the_embedder_does_not_know_vote_for_nothing() -> None:
    units = np.arange(3, dtype=np.int32)
    for value in (0.0, np.nan, np.inf):
        vectors = np.full((3, 6), value, np.float32)
        assert not vote.votes_of_shard((vectors, units, 0 * units), unit_rows(4, 1), settings()).any()


def test_no_units_and_no_candidates_have_no_votes() -> None:
    none = np.zeros((0, 6), np.float32), np.zeros(0, np.int32), np.zeros(0, np.int32)
    assert (vote.votes_of_shard(none, unit_rows(4, 1), settings()) == np.zeros((2, 4))).all()
    assert vote.votes_of_shard(some_shard(), np.zeros((0, 6), np.float32), settings()).shape == (2, 0)


# --- The draw --------------------------------------------------------------------


@pytest.fixture
def with_list(work_dir: str) -> str:
    """A work directory with a written list of four texts."""
    (pathlib.Path(work_dir) / ROUNDS_FOLDER).mkdir()
    texts = made_up.candidates()[:4]
    write_file(vectors_path(work_dir, 1), vectors_to_bytes(unit_rows(4, 1)))
    write_file(round_path(work_dir, 'candidates-01.json'), candidates_to_json(1, texts).encode())
    return work_dir


def test_noise_is_drawn_once(with_list: str) -> None:
    sums: np.ndarray = np.arange(8).reshape(2, 4) * text_votes.QUANTA_PER_VOTE
    assert vote.draw_votes(sums.tobytes(), settings(), with_list, 1) == 1
    path = pathlib.Path(round_path(with_list, votes_name(1)))
    drawn = path.read_bytes()
    # The same step again, and one that other votes reach
    for again in (sums, 2 * sums):
        assert vote.draw_votes(again.tobytes(), settings(), with_list, 1) == 1
        assert path.read_bytes() == drawn
    votes = read_generation(with_list, 1).votes
    assert (votes * text_votes.QUANTA_PER_VOTE != sums).any()
    # Noise of 2 votes: 8 cells are all within 20 of the truth but for one time in 10²².
    assert np.abs(votes - sums / text_votes.QUANTA_PER_VOTE).max() < 20


def test_noise_follows_from_the_key_the_list_and_the_votes(with_list: str) -> None:
    """A lost file is drawn the same again. Two draws of a cell are equal once in 7,000 times."""
    sums: np.ndarray = np.arange(8).reshape(2, 4) * text_votes.QUANTA_PER_VOTE

    def noise(of: np.ndarray) -> np.ndarray:
        pathlib.Path(round_path(with_list, votes_name(1))).unlink(missing_ok=True)
        vote.draw_votes(of.tobytes(), settings(), with_list, 1)
        return read_generation(with_list, 1).votes - of / text_votes.QUANTA_PER_VOTE

    first = noise(sums)
    assert (noise(sums) == first).all()
    neighbour = sums.copy()
    neighbour[0, 0] += text_votes.QUANTA_PER_VOTE
    found = [noise(neighbour)]
    # Another list with the same votes: equal tables would show that both lists have them.
    texts = made_up.candidates()[1:5]
    pathlib.Path(round_path(with_list, 'candidates-01.json')).write_text(candidates_to_json(1, texts))
    found.append(noise(sums))
    pathlib.Path(vectors_path(with_list, 1)).write_bytes(vectors_to_bytes(unit_rows(4, 2)))
    found.append(noise(sums))
    pathlib.Path(with_list, 'run.json').write_text('{"input": "another"}')
    found.append(noise(sums))
    for one, other in itertools.combinations([first, *found], 2):
        assert (one != other).sum() > 6


def test_noise_is_drawn_also_where_nobody_votes(with_list: str) -> None:
    assert vote.add_votes([]) == vote.add_votes([b'', b'']) == b''
    assert vote.draw_votes(b'', settings(), with_list, 1) == 1
    votes = read_generation(with_list, 1).votes
    assert votes.shape == (2, 4) and votes.any()


def test_tables_are_added_in_any_parts() -> None:
    tables = [np.full(4, number, np.int64).tobytes() for number in (1, 20, 300)]
    whole = vote.add_votes(tables)
    assert vote.add_votes([vote.add_votes(tables[:2]), b'', vote.add_votes(tables[2:])]) == whole
    assert np.frombuffer(whole, np.int64).tolist() == [321] * 4


def test_a_draw_that_fails_says_nothing_of_the_votes(with_list: str) -> None:
    with pytest.raises(RuntimeError, match='Expected the noise of the votes to be drawn') as failed:
        vote.draw_votes(b'12345678', settings(), with_list, 1)
    assert '12345678' not in str(failed.value) and failed.value.__cause__ is None
    assert not pathlib.Path(round_path(with_list, votes_name(1))).exists()
