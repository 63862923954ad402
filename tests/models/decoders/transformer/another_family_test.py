"""A family of another layout than Gemma's is numbers, names and a tokenizer, and keeps the same contracts.

Twin: one row's logits in NumPy and float64, with every tensor by its own name.
"""

import functools
import pathlib
from collections.abc import Callable

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from models.decoders import family
from models.decoders.decoder import Decoder, Shapes
from tests.contracts import decoder_contract
from tests.contracts.decoder_contract import DecoderCase, TokenizerCase, TunableCase
from tests.dummies import llama
from tests.dummies.llama.family import LlamaFamily
from tests.dummies.llama.formats import ARCHITECTURES

MODEL = 'llama-tiny'
ARCHITECTURE = ARCHITECTURES[MODEL]
LLAMA = LlamaFamily()


def tensors() -> dict[str, np.ndarray]:
    """Random weights, large enough for peaked attention."""
    rng, a = np.random.default_rng(0), ARCHITECTURE
    wide, narrow = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        'tok_embeddings': (a.num_embed, a.embed_dim), 'output': (a.num_embed, a.embed_dim),
        'norm': (a.embed_dim,),
    }  # fmt: skip
    for index in range(a.num_layers):
        of_layer = {
            'attention.wq': (wide, a.embed_dim), 'attention.wk': (narrow, a.embed_dim),
            'attention.wv': (narrow, a.embed_dim), 'attention.wo': (a.embed_dim, wide),
            'feed_forward.w1': (a.hidden_dim, a.embed_dim), 'feed_forward.w2': (a.embed_dim, a.hidden_dim),
            'feed_forward.w3': (a.hidden_dim, a.embed_dim), 'attention_norm': (a.embed_dim,),
            'ffn_norm': (a.embed_dim,),
        }  # fmt: skip
        shapes |= {f'layers.{index}.{name}': shape for name, shape in of_layer.items()}
    return {
        f'{name}.weight': rng.normal(len(shape) == 1, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('llama')
    save_file(tensors(), folder / 'model.safetensors')
    return folder


@functools.cache
def _decoder(folder: pathlib.Path, shapes: Shapes) -> Decoder:
    return LLAMA.load_decoder(MODEL, folder, shapes=shapes, dtype='float32')


def slow_logits(tokens: list[int]) -> np.ndarray:
    """Logits `[L V]` of one row."""
    a, weights = ARCHITECTURE, {name: value.astype(np.float64) for name, value in tensors().items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights[f'{name}.weight']

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f'{name}.weight'].T

    def rotate(x: np.ndarray) -> np.ndarray:
        angles = np.arange(len(x))[:, None] / 500_000 ** (np.arange(0, a.head_dim, 2) / a.head_dim)
        turned = (x[..., : a.head_dim // 2] + 1j * x[..., a.head_dim // 2 :]) * np.exp(1j * angles)[:, None]
        return np.concatenate([turned.real, turned.imag], -1)

    x = weights['tok_embeddings.weight'][tokens]
    for index in range(a.num_layers):
        layer = f'layers.{index}.'
        hidden = norm(x, layer + 'attention_norm')
        query, key, value = (
            linear(hidden, f'{layer}attention.w{name}').reshape(len(x), -1, a.head_dim) for name in 'qkv'
        )
        key, value = (np.repeat(one, a.num_heads // a.num_kv_heads, axis=1) for one in (rotate(key), value))
        scores = np.einsum('qnh,knh->nqk', rotate(query), key) / np.sqrt(a.head_dim)
        shares = np.exp(np.where(np.tri(len(x)), scores, -np.inf))
        shares /= shares.sum(-1, keepdims=True)
        x = x + linear(np.einsum('nqk,knh->qnh', shares, value).reshape(len(x), -1), layer + 'attention.wo')
        hidden = norm(x, layer + 'ffn_norm')
        gate = linear(hidden, layer + 'feed_forward.w1')
        x = x + linear(
            gate / (1 + np.exp(-gate)) * linear(hidden, layer + 'feed_forward.w3'), layer + 'feed_forward.w2'
        )
    return linear(norm(x, 'norm'), 'output')


@pytest.mark.heavy
@pytest.mark.first
def test_logits_are_those_of_a_model_written_by_hand(folder: pathlib.Path) -> None:
    decoder = _decoder(folder, decoder_contract.SHAPES)
    prompts = decoder_contract.prompts(ARCHITECTURE.num_embed, 4)
    found = decoder_contract.decoded(decoder, prompts, decoder_contract.EXAMPLES)
    for example, logits in zip(decoder_contract.EXAMPLES, found, strict=True):
        for row, prompt in enumerate(prompts):
            expected = slow_logits([*prompt, *example])[len(prompt) - 1 :]
            np.testing.assert_allclose(logits[:, row], expected, rtol=0, atol=1e-4)
            assert np.ptp(expected) > 1


@pytest.mark.heavy
@pytest.mark.parametrize('check', decoder_contract.DECODER_CHECKS, ids=lambda check: check.__name__)
def test_decoder(folder: pathlib.Path, check: Callable[[DecoderCase], None]) -> None:
    check(DecoderCase(load=functools.partial(_decoder, folder)))


@pytest.mark.heavy
@pytest.mark.parametrize('check', decoder_contract.TUNABLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('rank', [2, None])
def test_tunable(folder: pathlib.Path, rank: int | None, check: Callable[[TunableCase], None]) -> None:
    check(TunableCase(family=LLAMA, model=MODEL, checkpoint=str(folder), rank=rank))


@pytest.mark.parametrize('check', decoder_contract.TOKENIZER_CHECKS, ids=lambda check: check.__name__)
def test_tokenizer(check: Callable[[TokenizerCase], None]) -> None:
    check(TokenizerCase(tokenizer=LLAMA.load_tokenizer(MODEL, 'a file'), num_embed=ARCHITECTURE.num_embed))


def test_a_folder_of_another_size_is_refused_by_its_numbers(folder: pathlib.Path) -> None:
    files = family.ModelFiles(checkpoint=str(folder), tokenizer='')
    LLAMA.check_files(MODEL, files)
    with pytest.raises(ValueError, match='num_layers=3 where 4 is.* those of --model llama-tiny'):
        LLAMA.check_files('llama-small', files)


def test_weights_that_a_device_has_no_room_for_are_refused(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another process holds the card; other errors of a device stay as they are."""

    def failing(said: str) -> Callable[..., None]:
        def load(*_: object) -> None:
            raise jax.errors.JaxRuntimeError(said)

        return load

    monkeypatch.setattr(type(LLAMA), 'load_weights', failing('RESOURCE_EXHAUSTED: out of memory'))
    for load in (
        functools.partial(LLAMA.load_decoder, shapes=decoder_contract.SHAPES),
        LLAMA.load_tunable,
        LLAMA.load_pooling,
    ):
        with pytest.raises(MemoryError, match=f'model={MODEL!r} to fit .* a device of its own'):
            load(MODEL, str(folder), dtype='float32')
    monkeypatch.setattr(type(LLAMA), 'load_weights', failing('INTERNAL: the card is gone'))
    with pytest.raises(jax.errors.JaxRuntimeError, match='the card is gone'):
        LLAMA.load_pooling(MODEL, str(folder), dtype='float32')


def test_a_folder_without_its_own_output_layer_is_refused(tmp_path: pathlib.Path) -> None:
    tied = {name: value for name, value in tensors().items() if name != 'output.weight'}
    save_file(tied, tmp_path / 'model.safetensors')
    with pytest.raises(ValueError, match='got none for names=output.weight'):
        LLAMA.load_decoder(MODEL, tmp_path, shapes=decoder_contract.SHAPES, dtype='float32')


def test_the_family_costs_one_small_folder() -> None:
    files = pathlib.Path(next(iter(llama.__path__))).glob('*.py')
    assert sum(len(file.read_text().splitlines()) for file in files) <= 200
