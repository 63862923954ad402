import pathlib
from collections.abc import Callable

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from models import bundled
from models.decoders.gemma import architectures, tokenizer
from tests.contracts import decoder_contract
from tests.contracts.decoder_contract import TokenizerCase
from tests.samples import assert_import_leaves

BUNDLED_PATH = bundled.TOKENIZER
CONTROL_TEXTS = (
    '<pad>', '</s>', '<s>', '<unk>', '<mask>', '[multimodal]', '<unused0>', '<unused98>',
    '<start_of_turn>', '<end_of_turn>',
)  # fmt: skip
MULTILINGUAL = (
    '', ' ', '  two  spaces ', '\n\n', 'tab\tand\r\n', 'Grüße aus Zürich', 'Ελληνικά', 'русский текст',
    'עברית', 'العربية', 'हिन्दी', '日本語の文章', '한국어', 'ไทย', '👩\u200d👩\u200d👧 family',
    'e\u0301 and é', 'ﬁ ligature', 'nul\0inside', '\ufeffmark', '1234567890', '{"name": ["str", 1.5]}',
    '<b>bold</b> a < b > c', '<end_of_turn', 'end_of_turn>', '<End_of_turn>', '\u2581lower block',
)  # fmt: skip


@pytest.fixture(scope='module')
def bpe_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A byte-pair vocabulary like Gemma 2's: control pieces, and tags that are ordinary text."""
    path = tmp_path_factory.mktemp('bpe') / 'tokenizer.model'
    controls = ['<mask>', '<2mass>', '[@BOS@]', *(f'<unused{i}>' for i in range(99))]
    controls += ['<start_of_turn>', '<end_of_turn>', '<table>', '<s>', '<start_of_image>', '[toxicity=0]']
    # The control strings are in the corpus, so that merges could spell them.
    sentences = ['the end of the turn <end_of_turn> and its <unused7> text, start_of_turn <mask>'] * 40
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences + list(MULTILINGUAL[5:12])), model_prefix=str(path.with_suffix('')),
        model_type='bpe', vocab_size=520, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece='<pad>',
        eos_piece='<eos>', bos_piece='<bos>', user_defined_symbols=controls, byte_fallback=True,
        normalization_rule_name='identity', add_dummy_prefix=False, remove_extra_whitespaces=False,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return path


@pytest.fixture(scope='module', params=['bundled', 'bpe', 'bpe by SentencePiece alone'])
def case(request: pytest.FixtureRequest, bpe_path: pathlib.Path) -> tokenizer.GemmaTokenizer:
    if request.param == 'bundled':
        return tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='3')
    of_path = tokenizer.GemmaTokenizer(bpe_path, generation='2')
    return of_path if request.param == 'bpe' else _by_sentencepiece(of_path)


def _by_sentencepiece(of_path: tokenizer.GemmaTokenizer) -> tokenizer.GemmaTokenizer:
    """A tokenizer as it is on a machine without TensorFlow Text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, '_has_tensorflow_text', lambda: False)
        assert isinstance(of_path._processor, tokenizer._SentencePiece)
    return of_path


@pytest.fixture(scope='module')
def bundled() -> tokenizer.GemmaTokenizer:
    return tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='3')


def _original(case: tokenizer.GemmaTokenizer) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(case.model_path))


def _control_pieces(case: tokenizer.GemmaTokenizer) -> dict[str, int]:
    """Control pieces by their text, listed here independently of the module's pattern."""
    original = _original(case)
    fixed = {'<start_of_image>', '[toxicity=0]', '<2mass>', '[@BOS@]', '<bos>', '<eos>', *CONTROL_TEXTS}
    fixed |= {f'<unused{i}>' for i in range(99)}
    pieces = {original.IdToPiece(index): index for index in range(case.vocab_size)}
    if case.generation == '2':
        fixed.remove('<s>')  # There an HTML tag.
    return {piece: index for piece, index in pieces.items() if piece in fixed}


@pytest.mark.parametrize('check', decoder_contract.TOKENIZER_CHECKS, ids=lambda check: check.__name__)
def test_contract(bpe_path: pathlib.Path, check: Callable[[TokenizerCase], None]) -> None:
    """The bundled model's tokenizer keeps it in tests/contracts."""
    two = tokenizer.GemmaTokenizer(bpe_path, generation='2')
    check(TokenizerCase(tokenizer=two, num_embed=two.vocab_size + 3))


@pytest.mark.parametrize('check', decoder_contract.TOKENIZER_CHECKS, ids=lambda check: check.__name__)
def test_contract_by_sentencepiece(check: Callable[[TokenizerCase], None]) -> None:
    bundled = _by_sentencepiece(tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='3'))
    check(TokenizerCase(tokenizer=bundled, num_embed=bundled.vocab_size + 3))


@pytest.mark.heavy
def test_sentencepiece_gives_the_ids_of_tensorflow_text(bundled: tokenizer.GemmaTokenizer) -> None:
    other = _by_sentencepiece(tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='3'))
    texts = [*MULTILINGUAL, *CONTROL_TEXTS, *decoder_contract.TEXTS, '\ud800 alone']
    ids = bundled.encode_batch(texts)
    for one, two in zip(ids, other.encode_batch(texts), strict=True):
        np.testing.assert_array_equal(one, two)
    assert bundled.decode_batch(ids) == other.decode_batch(ids)


def test_ordinary_text_has_the_ids_of_the_sentencepiece_package(case: tokenizer.GemmaTokenizer) -> None:
    expected = _original(case).Encode(list(MULTILINGUAL))
    found = case.encode_batch(MULTILINGUAL)
    assert [ids.tolist() for ids in found] == expected
    assert {ids.dtype for ids in found} == {np.dtype(np.int32)}


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=8))
def test_any_text_has_the_ids_of_the_sentencepiece_package(
    case: tokenizer.GemmaTokenizer, texts: list[str]
) -> None:
    plain = [text for text in texts if not any(piece in text for piece in _control_pieces(case))]
    assert [ids.tolist() for ids in case.encode_batch(plain)] == _original(case).Encode(plain)


def test_the_original_model_does_confuse_text_and_control(case: tokenizer.GemmaTokenizer) -> None:
    # The premise of the test below: without the retyping, a record closes its turn.
    assert case.special_tokens.end_of_turn in _original(case).Encode('so <end_of_turn> it')


def test_no_text_gives_a_control_id(case: tokenizer.GemmaTokenizer) -> None:
    pieces = _control_pieces(case)
    texts = [text for piece in pieces for text in (piece, f'a{piece}b', f' {piece} ', piece * 2)]
    for text, ids in zip(texts, case.encode_batch(texts), strict=True):
        assert not set(ids.tolist()) & set(pieces.values()), text
    assert case.decode_batch(case.encode_batch(texts)) == texts


@settings(max_examples=100, deadline=None)
@given(
    fragments=st.lists(
        st.sampled_from(
            ['<end_of_turn>', '<unused7>', '<', '<end', '_of_turn', '>', '[multimodal', ']', '<mask>']
        )
        | st.text(max_size=5),
        max_size=12,
    )
)
def test_no_mixture_gives_a_control_id(case: tokenizer.GemmaTokenizer, fragments: list[str]) -> None:
    text = ''.join(fragments)
    ids = case.encode_batch([text])
    assert not set(ids[0].tolist()) & set(_control_pieces(case).values())
    # SentencePiece writes spaces as U+2581 and reads both back as spaces.
    assert case.decode_batch(ids) == [text.replace('\u2581', ' ')]


def test_tags_that_are_ordinary_text_stay_single_tokens(bpe_path: pathlib.Path) -> None:
    two = tokenizer.GemmaTokenizer(bpe_path, generation='2')
    for tag in ('<table>', '<s>'):
        (ids,) = two.encode_batch([tag])
        assert ids.tolist() == [_original(two).PieceToId(tag)]
        assert two.released_token_mask()[ids].all()


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 255), max_size=20))
def test_byte_pieces_decode_to_valid_unicode(case: tokenizer.GemmaTokenizer, values: list[int]) -> None:
    first = _original(case).PieceToId('<0x00>')
    (text,) = case.decode_batch([[first + value for value in values]])
    text.encode('utf-8')
    try:
        expected = bytes(values).decode('utf-8')
    except UnicodeDecodeError:
        assert '\ufffd' in text
    else:
        assert text == expected


@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.lists(st.integers(0, 4095), max_size=20), min_size=1, max_size=5))
def test_any_ids_decode_like_the_sentencepiece_package(
    bundled: tokenizer.GemmaTokenizer, ids: list[list[int]]
) -> None:
    controls = set(_control_pieces(bundled).values())
    plain = [[index for index in row if index not in controls] for row in ids]
    original = _original(bundled)
    assert bundled.decode_batch(plain) == [original.Decode(row) for row in plain]


def test_control_tokens_decode_to_nothing(bundled: tokenizer.GemmaTokenizer) -> None:
    special = bundled.special_tokens
    word = bundled.encode_batch(['word'])[0].tolist()
    row = [special.bos, special.start_of_turn, *word, special.end_of_turn, special.eos, special.pad]
    assert bundled.decode_batch([row]) == ['word']


def test_released_tokens_are_text_and_the_two_stops(case: tokenizer.GemmaTokenizer) -> None:
    mask = case.released_token_mask()
    special, pieces = case.special_tokens, _control_pieces(case)
    assert mask.shape == (case.vocab_size,) and mask.dtype == bool
    withheld = set(pieces.values()) - set(special.stop)
    assert set(np.flatnonzero(~mask)) == withheld
    assert {special.pad, special.bos, special.unk, special.mask, special.start_of_turn} <= withheld
    assert mask[list(special.stop)].all()


def test_whatever_text_encodes_to_may_be_released(case: tokenizer.GemmaTokenizer) -> None:
    mask = case.released_token_mask()
    for ids in case.encode_batch([*MULTILINGUAL, *CONTROL_TEXTS]):
        assert mask[ids].all()


def test_vocabulary_and_special_tokens_of_the_bundled_model(bundled: tokenizer.GemmaTokenizer) -> None:
    architecture = architectures.ARCHITECTURES['bundled']
    assert bundled.vocab_size == architecture.num_embed
    assert bundled.special_tokens == architecture.special_tokens
    original = _original(bundled)
    assert (original.pad_id(), original.eos_id(), original.bos_id(), original.unk_id()) == (0, 1, 2, 3)
    assert original.IdToPiece(bundled.special_tokens.mask) == '<mask>'


def test_tokenizer_of_another_generation_is_refused() -> None:
    wrong = tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='2')
    with pytest.raises(ValueError, match="'<start_of_turn>' at id 106 of a Gemma 2 tokenizer"):
        wrong.encode_batch(['text'])


def test_unknown_generation_is_refused() -> None:
    with pytest.raises(ValueError, match="got generation='5'"):
        tokenizer.GemmaTokenizer(BUNDLED_PATH, generation='5')


@pytest.mark.run
def test_import_leaves_the_heavy_libraries_alone() -> None:
    assert_import_leaves(
        'models.decoders.gemma.tokenizer', 'jax', 'tensorflow', 'tensorflow_text', 'gemma', 'sentencepiece'
    )
