"""Embeddings of shares of units: one file whatever the order of rows, and embedded once."""

import itertools
import pathlib
import random

import numpy as np
import pytest

from models.clustering.centers import ClusterSettings
from models.finetuning.units import Row
from tests.models.evolution.made_up import LABELS, UNKNOWN, WordEmbedder
from transforms.durable import ERRORS_FOLDER
from transforms.evolve import embed
from transforms.evolve.embed import read_shard
from transforms.evolve.files import shard_path
from transforms.run_files import EMBEDDINGS_FOLDER


def some_rows() -> list[Row]:
    """Units of one to three texts; two with the same hash, as equal records have."""
    texts = ['invoice refund', 'parcel road', UNKNOWN, 'price', '']
    rows: list[Row] = [
        (bytes([number]) * 16, LABELS[number % 2], texts[number % 3 : number % 3 + 1 + number % 3])
        for number in range(12)
    ]
    return [*rows, rows[3], (rows[4][0], rows[4][1], ['address'])]


def test_a_file_does_not_depend_on_the_order_of_rows() -> None:
    rows = some_rows()
    data = embed.embedded(rows, LABELS, WordEmbedder())
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        assert embed.embedded(iter(rows), LABELS, WordEmbedder()) == data


@pytest.fixture
def embeddings(work_dir: str) -> str:
    (pathlib.Path(work_dir) / EMBEDDINGS_FOLDER).mkdir()
    return work_dir


def test_records_of_a_unit_lie_together_with_its_label(embeddings: str) -> None:
    rows = some_rows()
    pathlib.Path(shard_path(embeddings, 3)).write_bytes(embed.embedded(rows, LABELS, WordEmbedder()))
    vectors, units, groups = read_shard(embeddings, 3)
    assert vectors.dtype == np.float32 and (np.diff(units) >= 0).all()
    found = [
        (LABELS[groups[own][0]], vectors[own].tobytes())
        for unit in range(units.max() + 1)
        for own in [units == unit]
        if (groups[own] == groups[own][0]).all()
    ]
    expected = [(label, WordEmbedder().embed(texts).tobytes()) for _, label, texts in rows]
    assert sorted(found) == sorted(expected)


def test_none_are_a_file_too(embeddings: str) -> None:
    pathlib.Path(shard_path(embeddings, 0)).write_bytes(embed.embedded([], LABELS, WordEmbedder()))
    vectors, units, groups = read_shard(embeddings, 0)
    assert vectors.shape == (0, 10) and len(units) == len(groups) == 0


def test_a_share_is_of_the_hash_alone() -> None:
    for row, shards in itertools.product(some_rows(), (1, 3, 256)):
        share, same = embed._key_by_shard(row, shards)
        assert same is row and 0 <= share < shards
        assert embed._key_by_shard((row[0], None, ['another']), shards)[0] == share


def embed_shard(work_dir: str, embedder: WordEmbedder) -> embed._EmbedShard:
    """The step with another embedder than that of its settings."""
    step = embed._EmbedShard(ClusterSettings(), LABELS, work_dir)
    step._shared.acquire = lambda _: embedder  # type: ignore[method-assign]
    return step


def test_a_record_is_embedded_once(embeddings: str) -> None:
    embedder = WordEmbedder()
    step = embed_shard(embeddings, embedder)
    assert list(step.process((5, some_rows()))) == [5]
    texts = [text for _, _, of_unit in some_rows() for text in of_unit]
    assert sorted(embedder.embedded) == sorted(texts)
    kept = pathlib.Path(shard_path(embeddings, 5)).read_bytes()
    assert list(step.process((5, reversed(some_rows())))) == [5]
    assert len(embedder.embedded) == len(texts)
    assert pathlib.Path(shard_path(embeddings, 5)).read_bytes() == kept


def test_a_failure_stays_with_the_curator(embeddings: str) -> None:
    rows: list[Row] = [(bytes(16), 'no such label', ['a private text'])]
    with pytest.raises(RuntimeError, match='Expected every record to have an embedding') as failed:
        list(embed_shard(embeddings, WordEmbedder()).process((0, rows)))
    assert 'private' not in str(failed.value) and 'no such label' not in str(failed.value)
    assert len(list((pathlib.Path(embeddings) / ERRORS_FOLDER).iterdir())) == 1
    assert not pathlib.Path(shard_path(embeddings, 0)).exists()
