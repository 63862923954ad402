"""Texts of our own decoder: against a loop without cache or rows; the same in any order and company."""

import dataclasses
import functools
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import speed
from models.decoders import decoder, family
from models.grammars.structure import Structure
from models.privacy.randomness import RunKey
from models.prompt_templates import PRESETS
from models.sampling import columns
from models.sampling.decoder_source import DecoderSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request, SampledText
from tests import oracles
from tests.models.finetuning import tiny
from tests.samples import SECRET, needs_model

pytestmark = pytest.mark.heavy

KEY = RunKey(SECRET)
# High, so that texts differ.
TEMPERATURE = 4.0


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def _settings(**changed: Any) -> SamplerSettings:
    given: dict[str, Any] = {
        'model': 'tiny', 'checkpoint': '', 'tokenizer': '', 'dtype': 'float32', 'template': tiny.TEMPLATE,
        'max_prompt_tokens': 24, 'max_example_tokens': 14, 'temperature': TEMPERATURE, 'top_p': 0.9,
        'rows': 8,
    }  # fmt: skip
    return SamplerSettings(**(given | changed))


def _requests(count: int) -> list[Request]:
    """Three labels, every third with examples."""
    shown = (('so',), ('as it is', 'was'))
    return [
        Request(
            name=f'{number:06d}',
            label='abc'[number % 3],
            examples=shown[number % 2] if number % 3 == 1 else (),
        )
        for number in range(count)
    ]


@functools.cache
def _model() -> decoder.Decoder:
    shapes = decoder.Shapes(max_prompt_tokens=48, max_example_tokens=1, micro_batch_size=1)
    return family.family_of('tiny').load_decoder('tiny', '', shapes=shapes, dtype='float32')


def _logits(tokens: np.ndarray) -> np.ndarray:
    states, _ = _model().prefill([tokens])
    return np.asarray(_model().logits(_model().weights, states[0]))[0].astype(float)


def _alone(settings: SamplerSettings, request: Request, allowed: oracles.Allowed) -> SampledText:
    """The text of one request, every token from the whole text before it."""
    writer = settings.writer()
    prompt = (
        writer.prompts_around(request.label, [request.examples])[0]
        if request.examples
        else writer.public_prompt(request.label)
    )
    words = np.frombuffer(KEY.hash('text', request.name.encode(), size=8), np.uint32)
    key = jax.random.wrap_key_data(jnp.asarray(words))
    row: tuple[int, ...] = ()
    while len(row) < settings.max_example_tokens and not _is_over(settings, row):
        mask = allowed(row)
        early = mask.copy()
        early[[token for token in range(260) if _is_over(settings, (*row, token))]] = False
        if len(row) < settings.min_example_tokens and early.any():
            mask = early
        logits = np.where(mask, _logits(np.array([*prompt, *row], np.int32)), -np.inf)
        of_place = jax.random.fold_in(key, len(row))
        draws = (float(jax.random.uniform(jax.random.fold_in(of_place, trial))) for trial in range(1000))
        token = oracles.drawn(logits / settings.temperature, draws, settings.top_p, settings.top_k)
        row = (*row, token)
    text = tiny.Bytes().decode_batch([[token for token in row if token != tiny.EOS]])[0]
    if settings.structure is None:
        text = text.partition(';')[0].strip()
    return SampledText(text=text, tokens=len(row), truncated=not _is_over(settings, row))


def _is_over(settings: SamplerSettings, row: tuple[int, ...]) -> bool:
    ends = {tiny.EOS} if settings.structure is not None else {tiny.EOS, tiny.FIRST_BYTE + ord(';')}
    return bool(row) and row[-1] in ends


@pytest.mark.parametrize('top_p, top_k, least', [(0.9, None, 0), (1.0, 3, 5), (0.6, 40, 13)])
def test_texts_are_those_of_a_loop_for_each_alone(top_p: float, top_k: int | None, least: int) -> None:
    """Twice as many and more than rows, of several lengths, so that rows are filled again."""
    settings = _settings(top_p=top_p, top_k=top_k, min_example_tokens=least)
    allowed, requests = oracles.vocabulary(tiny.Bytes().released_token_mask()), _requests(21)
    found = DecoderSource(settings).sample(requests, KEY)
    assert found == [_alone(settings, request, allowed) for request in requests]
    lengths = {text.tokens for text in found if text is not None}
    assert len({text.text for text in found if text is not None}) > 15 and min(lengths) > least
    if not least:
        assert len(lengths) > 3


WORDS = [first + rest for first in ('ab', 'ab;', 'q') for rest in ('', 'c', 'cd', 'cde;', 'x' * 12)]


@pytest.mark.parametrize('least', [0, 4])
def test_with_a_structure_each_row_is_in_a_state_of_its_own(least: int) -> None:
    """A text that the structure ends before the least number of tokens ends there."""
    settings = _settings(
        structure=Structure(regex='(ab;?|q)((cd?|cde;)?|x{12})'), min_example_tokens=least, top_p=0.95
    )
    pieces, released = tiny.Bytes().token_bytes(), tiny.Bytes().released_token_mask()
    whole = {word.encode() for word in WORDS}
    begun = {text[:length] for text in whole for length in range(len(text) + 1)}
    sampled = set(np.flatnonzero(released).tolist()) - {tiny.EOS}
    allowed = oracles.grammar(begun.__contains__, whole.__contains__, pieces, sampled, {tiny.EOS})
    requests = _requests(20)
    found = DecoderSource(settings).sample(requests, KEY)
    assert found == [_alone(settings, request, allowed) for request in requests]
    texts = {text.text for text in found if text is not None and not text.truncated}
    assert len(texts) > 2 and texts <= set(WORDS)


@pytest.mark.first
def test_a_text_is_the_same_in_any_order_and_company() -> None:
    settings, requests = _settings(), _requests(30)
    source = DecoderSource(settings)
    found = dict(zip(requests, source.sample(requests, KEY), strict=True))
    order = [requests[place] for place in np.random.default_rng(0).permutation(30)]
    for some in (order, order[:3], order[5:25]):
        assert source.sample(some, KEY) == [found[request] for request in some]
    more_rows = DecoderSource(dataclasses.replace(settings, rows=24))
    assert more_rows.sample(order, KEY) == [found[request] for request in order]
    assert source.sample(requests, RunKey(bytes(32))) != [found[request] for request in requests]
    renamed = [dataclasses.replace(request, name=f'x{request.name}') for request in requests]
    assert source.sample(renamed, KEY) != [found[request] for request in requests]
    assert source.sample([], KEY) == []


def test_tokens_of_other_scripts_are_left_out_where_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that this model may say is Latin: the same texts from fewer columns, to rounding."""
    settings, requests = _settings(), _requests(20)
    source = DecoderSource(settings)
    found = source.sample(requests, KEY)
    assert source._few.columns is not None and len(source._few.columns) == 96
    assert source._is_few == {'a': True, 'b': True, 'c': True}
    monkeypatch.setattr(columns, 'MOST_LEFT_OUT', -1.0)
    of_all = DecoderSource(settings)
    assert of_all.sample(requests, KEY) == found and not any(of_all._is_few.values())
    with_structure = DecoderSource(_settings(structure=Structure(regex='a+')))
    assert with_structure._few is with_structure._all


def test_time_is_noted_of_the_tokens_of_all_texts_and_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    monkeypatch.setattr(speed, 'note', lambda work, tokens, seconds: noted.append(tokens))
    source, requests = DecoderSource(_settings()), _requests(21)
    of_labels = [request for request in requests if not request.examples]
    texts = source.sample(of_labels, KEY)
    # Prompts of labels were read before, to decide on tokens.
    assert sum(noted) == sum(text.tokens for text in texts if text is not None) and len(noted) > 1
    noted.clear()
    texts = source.sample([request for request in requests if request.examples], KEY)
    # Two different prompts go into the first rows, and are read again where others wait.
    rest = sum(noted) - sum(text.tokens for text in texts if text is not None)
    assert rest % 24 == 0 and rest >= 2 * 24


def test_more_labels_than_rows_are_read_again() -> None:
    requests = [Request(name=str(number), label=f'{number % 11:x}') for number in range(33)]
    source = DecoderSource(_settings())
    found = source.sample(requests, KEY)
    assert 0 < len(source._kept) <= 8 and source.sample(requests[::-1], KEY) == found[::-1]


def test_what_cannot_be_sampled_is_refused() -> None:
    source = DecoderSource(_settings(max_prompt_tokens=6))
    with pytest.raises(ValueError, match='different names'):
        source.sample([Request(name='a', label='a')] * 2, KEY)
    with pytest.raises(ValueError, match='max_prompt_tokens=6'):
        source.sample([Request(name='a', label='long label')], KEY)
    with pytest.raises(ValueError, match='leave room'):
        source.sample([Request(name='a', label='a', examples=('x', 'y', 'z'))], KEY)
    for wrong in (
        {'rows': 0}, {'top_p': 0.0}, {'top_k': 0}, {'temperature': 0.0}, {'min_example_tokens': 14},
    ):  # fmt: skip
        (name,) = wrong
        with pytest.raises(ValueError, match=f'{name}={wrong[name]}'):
            _settings(**wrong)


def test_settings_travel() -> None:
    assert pickle.loads(pickle.dumps(_settings())) == _settings()


# --- Models whose tokens are pieces of words -----------------------------------------


def _check_texts(settings: SamplerSettings) -> list[SampledText]:
    """Distinct texts of at least so many tokens, the same in another order."""
    requests = [Request(name=str(number), label='ab'[number % 2]) for number in range(24)]
    source = DecoderSource(settings)
    found = source.sample(requests, KEY)
    assert source.sample(requests[::-1], KEY) == found[::-1]
    texts = [text for text in found if text is not None]
    assert len({text.text for text in texts}) > 20
    assert all(settings.min_example_tokens < text.tokens <= settings.max_example_tokens for text in texts)
    return texts


def _of_model(model: str, **changed: Any) -> SamplerSettings:
    files = family.files_of(model)
    given: dict[str, Any] = {
        'model': model, 'checkpoint': files.checkpoint, 'tokenizer': files.tokenizer, 'dtype': 'float32',
        'template': PRESETS['pretrained'], 'max_prompt_tokens': 40, 'max_example_tokens': 12,
        'min_example_tokens': 6, 'rows': 16, 'label_words': (('a', 'World'), ('b', 'Sport')),
    }  # fmt: skip
    return SamplerSettings(**(given | changed))


@needs_model
def test_the_bundled_model() -> None:
    _check_texts(_of_model('bundled'))


def test_a_model_of_google(gemma_file: pathlib.Path) -> None:
    """And which of its labels ask for texts of another script."""
    _check_texts(
        _of_model('gemma3-270m', checkpoint=str(gemma_file), tokenizer=str(gemma_file), dtype='bfloat16')
    )
