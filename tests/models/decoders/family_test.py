"""The table of families: names to families, files, refusals; one registration makes a family known."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

from models import bundled, cache, fetched
from models.decoders import family
from models.decoders.gemma import architectures

GEMMA = family.FAMILIES['gemma']


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sizes(family.Sizes):
    num_parameters: int = 12

    def adapter_parameters(self, rank: int | None) -> int:
        return 7 * rank

    def gradient_bytes(self, tokens: int, length: int, *, remat: bool) -> int:
        return 0

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

    def origin(self, model: str) -> family.Origin:
        return family.Origin(name=model, maker='nobody', terms='none')

    def known_files(self, model: str) -> None:
        return None

    def tokenizer_within(self, checkpoint: str) -> str | None:
        return 'within' if checkpoint == 'whole' else None

    def check_files(self, model: str, files: family.ModelFiles) -> None:
        raise NotImplementedError

    load_decoder = load_tokenizer = load_pooling = check_files
    adapter_shapes = load_tunable = check_files


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
    assert family.files_of('dummy-1b', 'whole').tokenizer == 'within'
    assert family.files_of('dummy-1b', 'whole', 'given').tokenizer == 'given'
    with pytest.raises(ValueError, match="got checkpoint=None, tokenizer='given'"):
        family.files_of('dummy-1b', tokenizer='given')


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
        assert (GEMMA.known_files(model) is not None) == (model in (bundled.MODEL, fetched.MODEL))


def test_every_model_says_whose_it_is() -> None:
    assert GEMMA.origin('gemma3-270m') == family.Origin(
        name='Gemma 3 270M', maker='Google', terms='Gemma Terms of Use, ai.google.dev/gemma/terms'
    )
    assert GEMMA.origin('gemma1.1-2b').name == 'Gemma 1.1 2B'
    for model in family.model_names():
        origin = GEMMA.origin(model)
        assert (origin.maker == 'Google') == (model != 'bundled') and origin.terms


def test_a_gguf_file_is_all_that_a_model_needs() -> None:
    assert family.files_of('gemma3-1b', 'a.gguf') == family.ModelFiles(
        checkpoint='a.gguf', tokenizer='a.gguf'
    )
    assert family.files_of('gemma3-1b', 'a.gguf', 'mine').tokenizer == 'mine'
    with pytest.raises(ValueError, match='a GGUF file with --checkpoint alone'):
        family.files_of('gemma3-1b', 'folder')


def test_fetched_weights_are_found_in_the_cache(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    files = family.files_of(fetched.MODEL)
    assert files.checkpoint == files.tokenizer == str(fetched.fetched_file())
    assert fetched.fetched_file().is_relative_to(tmp_path)
    with pytest.raises(
        FileNotFoundError,
        match='none at checkpoint=.*`dp-corpus models fetch gemma3-270m`.*or give --checkpoint',
    ):
        GEMMA.check_files(fetched.MODEL, files)
    given = family.files_of(fetched.MODEL, 'folder')
    assert given == family.ModelFiles(checkpoint='folder', tokenizer=files.tokenizer)
    with pytest.raises(FileNotFoundError, match='none at tokenizer=.*or give --tokenizer'):
        GEMMA.check_files(fetched.MODEL, given)


def test_known_files_give_way_to_given_ones() -> None:
    shipped = family.files_of('bundled')
    assert shipped == family.ModelFiles(checkpoint=str(bundled.CHECKPOINT), tokenizer=str(bundled.TOKENIZER))
    assert family.files_of('bundled', tokenizer='mine').checkpoint == shipped.checkpoint
    assert family.files_of('bundled', tokenizer='mine').tokenizer == 'mine'


def test_files_that_are_missing_are_refused_before_loading(tmp_path: pathlib.Path) -> None:
    shipped = family.files_of('bundled')
    GEMMA.check_files('bundled', shipped)
    for name, message in (
        ('checkpoint', 'Expected a checkpoint, got checkpoint='),
        ('tokenizer', 'SentencePiece, JSON or GGUF file'),
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
