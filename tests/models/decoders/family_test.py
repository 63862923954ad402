"""The table of families: names to families, files, refusals; one registration makes a family known."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

from models import bundled
from models.decoders import family
from models.decoders.gemma import architectures

GEMMA = family.FAMILIES['gemma']


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sizes(family.Sizes):
    num_parameters: int = 12

    def cache_bytes_per_token(self, dtype_bytes: int) -> int:
        return 3 * dtype_bytes


class _Dummy(family.Family):
    """A family whose models are only named."""

    name = 'dummy'

    def __init__(self, *models: str) -> None:
        self._models = {model: _Sizes(num_embed=5, embed_dim=2) for model in models}

    @property
    def models(self) -> Mapping[str, family.Sizes]:
        return self._models

    def shipped_files(self, model: str) -> None:
        return None

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        raise NotImplementedError

    load_decoder = load_tokenizer = load_pooling = check_files


def test_one_registration_makes_a_family_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, 'FAMILIES', dict(family.FAMILIES))
    names = family.model_names()
    dummy = family.register(_Dummy('dummy-1b', 'dummy-2b'))
    assert family.model_names() == (*names, 'dummy-1b', 'dummy-2b')
    assert family.family_of('dummy-2b') is dummy and family.family_of('bundled') is GEMMA
    assert family.sizes_of('dummy-1b').num_parameters == 12
    with pytest.raises(ValueError, match='Did you mean dummy-2b'):
        family.family_of('dumy-2b')
    given = family.files_of('dummy-1b', 'folder', 'file')
    assert given == family.ModelFiles(checkpoint='folder', tokenizer='file')
    with pytest.raises(ValueError, match="a tokenizer for model='dummy-1b', got checkpoint='folder'"):
        family.files_of('dummy-1b', 'folder')


@pytest.mark.parametrize('taken', [_Dummy('gemma3-1b'), type('_Gemma', (_Dummy,), {'name': 'gemma'})('new')])
def test_a_name_that_is_taken_is_refused(taken: family.Family) -> None:
    before = dict(family.FAMILIES)
    with pytest.raises(ValueError, match='new names of a family and its models'):
        family.register(taken)
    assert before == family.FAMILIES


def test_the_models_are_those_of_gemma() -> None:
    assert family.model_names() == tuple(architectures.ARCHITECTURES)
    for model in family.model_names():
        assert family.sizes_of(model) is architectures.ARCHITECTURES[model]
        assert (GEMMA.shipped_files(model) is not None) == (model == bundled.MODEL)


def test_shipped_files_give_way_to_given_ones() -> None:
    shipped = family.files_of('bundled')
    assert shipped == family.ModelFiles(checkpoint=str(bundled.CHECKPOINT), tokenizer=str(bundled.TOKENIZER))
    assert family.files_of('bundled', tokenizer='mine').checkpoint == shipped.checkpoint
    assert family.files_of('bundled', tokenizer='mine').tokenizer == 'mine'


def test_files_that_are_missing_are_refused_before_loading(tmp_path: pathlib.Path) -> None:
    shipped = family.files_of('bundled')
    GEMMA.check_files('bundled', shipped)
    for name, message in (
        ('checkpoint', 'Expected a checkpoint, got path'),
        ('tokenizer', 'SentencePiece file'),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            GEMMA.check_files('bundled', dataclasses.replace(shipped, **{name: str(tmp_path / 'none')}))


@pytest.mark.run
def test_the_table_is_imported_without_heavy_libraries() -> None:
    """`--help` lists the models."""
    heavy = "{'jax', 'tensorflow', 'gemma', 'sentencepiece', 'etils', 'numpy'}"
    command = f'import sys; from models.decoders import family; assert not {heavy} & set(sys.modules)'
    environment = os.environ | {'PYTHONPATH': str(pathlib.Path(__file__).parents[3])}
    subprocess.run([sys.executable, '-c', command], check=True, timeout=60, env=environment)
