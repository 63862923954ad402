"""The tokenizer within a GGUF file: an invented one, and the real one against an independent tokenizer."""

import csv
import json
import lzma
import os
import pathlib
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from models.decoders.gemma import vocabulary as vocabulary_module
from models.decoders.gemma.tokenizer import GemmaTokenizer
from models.decoders.transformer import gguf_file
from tests.models.decoders.gemma import tokenizer_reference
from tests.models.decoders.gemma.gguf_files import write_gguf

FOLDER = pathlib.Path(__file__).parent
SHARED = pathlib.Path(__file__).parents[5] / 'shared' / 'data'
# Variable with the path of Gemma 3's tokenizer.json (tokenizer_reference.py says where to get it).
VARIABLE = 'GEMMA3_TOKENIZER_JSON'
# Spelt with ordinary pieces here; the other tokenizer makes them control tokens.
CONTROL_TEXTS = (
    '<pad>', '<eos>', '<bos>', '<unk>', '<mask>', '[multimodal]', '<unused0>', '<unused5>', '<unused98>',
    '<unused99>', '<unused6241>', '<start_of_turn>', '<end_of_turn>', '<start_of_image>', '<end_of_image>',
)  # fmt: skip


# --- An invented vocabulary ------------------------------------------------------


@pytest.fixture(scope='module')
def model_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A SentencePiece model as Gemma 3's: byte-pair merges, control pieces, runs of spaces and tags."""
    path = tmp_path_factory.mktemp('bpe') / 'tokenizer.model'
    controls = ['<mask>', '[multimodal]', *(f'<unused{i}>' for i in range(99))]
    controls += ['<start_of_turn>', '<end_of_turn>', '\n', '\n\n', '\t', '<table>', '</b>']
    controls += ['\u2581' * count for count in range(2, 9)]
    sentences = [text.replace('\0', '') for text in tokenizer_reference.SENTENCES] * 4
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences), model_prefix=str(path.with_suffix('')), model_type='bpe',
        vocab_size=900, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece='<pad>', eos_piece='<eos>',
        bos_piece='<bos>', user_defined_symbols=controls, byte_fallback=True, split_digits=True,
        normalization_rule_name='identity', add_dummy_prefix=False, remove_extra_whitespaces=False,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return path


@pytest.fixture(scope='module')
def vocabulary(model_path: pathlib.Path) -> dict[str, Any]:
    """The model as llama.cpp's converter writes it."""
    pieces = sentencepiece_model_pb2.ModelProto.FromString(model_path.read_bytes()).pieces
    kinds = type(pieces[0])
    return {
        'tokenizer.ggml.model': 'llama',
        'tokenizer.ggml.tokens': [
            piece.piece.replace('\u2581', ' ') if piece.type == kinds.USER_DEFINED else piece.piece
            for piece in pieces
        ],
        'tokenizer.ggml.scores': [piece.score for piece in pieces],
        'tokenizer.ggml.token_type': [
            kinds.CONTROL if piece.type == kinds.UNKNOWN else piece.type for piece in pieces
        ],
    }


def write(path: pathlib.Path, general: dict[str, Any]) -> pathlib.Path:
    return write_gguf(path, 'gemma3', {}, {'output_norm.weight': np.ones(2, np.float32)}, general=general)


def test_invented_vocabulary_gives_the_models_own_ids(
    model_path: pathlib.Path, vocabulary: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    within = GemmaTokenizer(write(tmp_path / 'a.gguf', vocabulary), '3')
    own = GemmaTokenizer(model_path, '3')
    texts = [*tokenizer_reference.texts(), *CONTROL_TEXTS, 'a \u2581 \u2581\u2581b', '<end_of_turn>\n\n  x']
    for text, found, expected in zip(texts, within.encode_batch(texts), own.encode_batch(texts), strict=True):
        assert found.tolist() == expected.tolist(), repr(text)
    assert within.decode_batch(within.encode_batch(texts)) == own.decode_batch(own.encode_batch(texts))
    np.testing.assert_array_equal(within.released_token_mask(), own.released_token_mask())
    # The file has them otherwise, so that the test could fail.
    assert '  ' in vocabulary['tokenizer.ggml.tokens'] and within._model.pieces[3].type == 2
    again = pickle.loads(pickle.dumps(within))
    assert again.encode_batch(['again'])[0].tolist() == own.encode_batch(['again'])[0].tolist()


def test_placeholders_after_the_last_piece_are_left_out(
    vocabulary: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(vocabulary['tokenizer.ggml.tokens'])
    monkeypatch.setattr(vocabulary_module, '_NUM_PIECES', {'3': count})
    longer = dict(vocabulary)
    longer['tokenizer.ggml.tokens'] = [*vocabulary['tokenizer.ggml.tokens'], '<image_soft_token>', '[PAD9]']
    longer['tokenizer.ggml.scores'] = [*vocabulary['tokenizer.ggml.scores'], -1000.0, -1000.0]
    longer['tokenizer.ggml.token_type'] = [*vocabulary['tokenizer.ggml.token_type'], 3, 5]
    assert GemmaTokenizer(write(tmp_path / 'a.gguf', longer), '3').vocab_size == count


def _merges(pieces: list[Any]) -> list[str]:
    """All pairs of ordinary pieces that make another, by its score, as converters list them."""
    ordinary = {piece.piece: piece.score for piece in pieces if piece.type == type(piece).NORMAL}
    pairs = [
        (-score, f'{piece[:cut]} {piece[cut:]}')
        for piece, score in ordinary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ordinary and piece[cut:] in ordinary
    ]
    return [pair for _, pair in sorted(pairs)]


def _write_json(path: pathlib.Path, pieces: list[Any]) -> pathlib.Path:
    """The pieces of a model as the `tokenizers` library has them."""
    kinds = type(pieces[0])
    added = [
        {'id': index, 'content': piece.piece, 'special': piece.type != kinds.USER_DEFINED}
        for index, piece in enumerate(pieces)
        if piece.type in (kinds.CONTROL, kinds.UNKNOWN, kinds.USER_DEFINED)
    ]
    vocabulary = {piece.piece: index for index, piece in enumerate(pieces)}
    model = {'type': 'BPE', 'vocab': vocabulary, 'merges': [pair.split(' ') for pair in _merges(pieces)]}
    path.write_text(json.dumps({'added_tokens': added, 'model': model}), encoding='utf-8')
    return path


@pytest.mark.parametrize('form', ['gguf', 'json'])
def test_merges_give_the_ids_of_scores(form: str, model_path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A vocabulary of Gemma 4, which has other names for turns and further control pieces."""
    model = sentencepiece_model_pb2.ModelProto.FromString(model_path.read_bytes())
    kinds = type(model.pieces[0])
    assert model.pieces[105].piece == '<start_of_turn>'
    for index, name in (
        (105, '<|turn>'),
        (106, '<turn|>'),
        (50, '<|tool>'),
        (60, '<|think|>'),
        (61, '<|"|>'),
    ):
        model.pieces[index].piece = name
    (tmp_path / 'tokenizer.model').write_bytes(model.SerializeToString())
    if form == 'json':
        path = _write_json(tmp_path / 'tokenizer.json', list(model.pieces))
    else:
        path = write(
            tmp_path / 'a.gguf',
            {
                'tokenizer.ggml.model': 'gemma4',
                'tokenizer.ggml.tokens': [piece.piece for piece in model.pieces],
                'tokenizer.ggml.scores': [-1000.0 for _ in model.pieces],
                'tokenizer.ggml.token_type': [
                    kinds.CONTROL if piece.type == kinds.UNKNOWN else piece.type for piece in model.pieces
                ],
                'tokenizer.ggml.merges': _merges(list(model.pieces)),
            },
        )
    found, own = GemmaTokenizer(path, '4'), GemmaTokenizer(tmp_path / 'tokenizer.model', '4')
    texts = [
        *tokenizer_reference.texts(), *CONTROL_TEXTS, '<|turn>user\n<turn|> <|think|><|"|><|tool>',
    ]  # fmt: skip
    for text, ids, expected in zip(texts, found.encode_batch(texts), own.encode_batch(texts), strict=True):
        assert ids.tolist() == expected.tolist(), repr(text)
        assert not {50, 60, 61, 105, 106} & set(ids.tolist()), repr(text)
    assert found.decode_batch(found.encode_batch(texts)) == own.decode_batch(own.encode_batch(texts))
    np.testing.assert_array_equal(found.released_token_mask(), own.released_token_mask())
    assert found.turn_markers == {'<start_of_turn>': (105,), '<end_of_turn>': (106,)}


def test_tokenizer_json_that_holds_no_merges_is_refused(
    model_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    model = sentencepiece_model_pb2.ModelProto.FromString(model_path.read_bytes())
    path = _write_json(tmp_path / 'tokenizer.json', list(model.pieces))
    content = json.loads(path.read_text())
    for change in ({'merges': []}, {'vocab': {'a': 5000}}):
        path.write_text(json.dumps(content | {'model': content['model'] | change}))
        with pytest.raises(ValueError, match='Expected ids from 0 on and merges, got tokenizer='):
            GemmaTokenizer(path, '3').encode_batch(['text'])
    path.write_text('[')
    with pytest.raises(ValueError, match='Fetch the file again'):
        GemmaTokenizer(path, '3').encode_batch(['text'])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'tokenizer.ggml.model': 'gpt2'}, "tokenizer.ggml.model='gpt2' with .*Give the tokenizer.model"),
        ({'tokenizer.ggml.model': None}, 'tokenizer.ggml.model=None'),
        ({'tokenizer.ggml.tokens': None}, ' 0 pieces'),
        ({'tokenizer.ggml.tokens': 7}, ' 1 pieces'),
        ({'tokenizer.ggml.tokens': [1, 2]}, ' 2 pieces'),
        ({'tokenizer.ggml.scores': [1.0, 2.0]}, ' 2 scores'),
        ({'tokenizer.ggml.token_type': None}, ' 0 types'),
    ],
)
def test_file_without_a_sentencepiece_vocabulary_is_refused(
    change: dict[str, Any], message: str, vocabulary: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    tokenizer = GemmaTokenizer(write(tmp_path / 'a.gguf', vocabulary | change), '3')
    with pytest.raises(ValueError, match=message):
        tokenizer.encode_batch(['text'])


def test_vocabulary_of_another_generation_is_refused(
    vocabulary: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / 'a.gguf', vocabulary)
    with pytest.raises(ValueError, match="'<start_of_turn>' at id 106 of a Gemma 2 tokenizer"):
        GemmaTokenizer(path, '2').encode_batch(['text'])
    with pytest.raises(ValueError, match=r"'<\|turn>' at id 105 of a Gemma 4 tokenizer"):
        GemmaTokenizer(path, '4').encode_batch(['text'])


# --- The real one ----------------------------------------------------------------


@pytest.fixture(scope='module')
def real(gemma_file: pathlib.Path) -> GemmaTokenizer:
    return GemmaTokenizer(gemma_file, '3')


@pytest.mark.heavy
def test_ids_are_those_of_an_independent_tokenizer(real: GemmaTokenizer) -> None:
    reference = json.loads((FOLDER / 'tokenizer_reference.json').read_text(encoding='utf-8'))
    texts = [text for text, _ in reference]
    assert texts == tokenizer_reference.texts() and len(texts) > 250
    for (text, expected), found in zip(reference, real.encode_batch(texts), strict=True):
        assert found.tolist() == expected, repr(text)
    assert real.decode_batch(real.encode_batch(texts)) == [text.replace('\u2581', ' ') for text in texts]


@pytest.mark.heavy
def test_ids_are_those_of_llama_cpp(real: GemmaTokenizer) -> None:
    reference = json.loads((FOLDER / 'llama_cpp_reference.json').read_text(encoding='utf-8'))['float32']
    for prompt, found in zip(reference, real.encode_batch([entry['prompt'] for entry in reference])):
        assert [*real.start_tokens, *found] == prompt['tokens']


@pytest.mark.heavy
def test_special_pieces_are_where_gemma_3_has_them(real: GemmaTokenizer, gemma_file: pathlib.Path) -> None:
    metadata = gguf_file.read_header(gemma_file).metadata
    special = real.special_tokens
    assert [metadata[f'tokenizer.ggml.{name}_token_id'] for name in ('bos', 'eos', 'unknown', 'padding')] == [
        special.bos, special.eos, special.unk, special.pad,
    ]  # fmt: skip
    assert real.vocab_size == 262_144
    allowed = real.released_token_mask()
    for text, ids in zip(CONTROL_TEXTS, real.encode_batch(CONTROL_TEXTS), strict=True):
        # Spelt out, of pieces that a text may hold.
        assert len(ids) > 1 and allowed[ids].all(), text
        assert real.decode_batch([ids]) == [text]


@pytest.mark.heavy
def test_a_lower_block_in_a_text_is_a_space_as_sentencepiece_has_it(real: GemmaTokenizer) -> None:
    texts = ['\u2581\u2581lower', 'a \u2581\u2581 b', '\u2581' * 9]
    spaces = [text.replace('\u2581', ' ') for text in texts]
    for found, expected in zip(real.encode_batch(texts), real.encode_batch(spaces), strict=True):
        assert found.tolist() == expected.tolist()


def _shared_texts() -> list[str]:
    """Real texts: news, dialogs of doctors with notes of them, questions, pages of an encyclopedia."""
    with (SHARED / 'agnews' / 'train_head.csv').open(encoding='utf-8') as file:
        texts = [row[-1] for row, _ in zip(csv.reader(file), range(1500))]
    with (SHARED / 'mts_dialog' / 'MTS-Dialog-TrainingSet.csv').open(encoding='utf-8') as file:
        for row in csv.DictReader(file):
            texts += [row['dialogue'], row['section_text']]
    texts += (SHARED / 'trec' / 'train.txt').read_text(encoding='latin-1').splitlines()[:1000]
    with lzma.open(SHARED / 'pretrain' / 'wiki_en.jsonl.xz', 'rt', encoding='utf-8') as file:
        texts += [json.loads(line)['text'] for line, _ in zip(file, range(400))]
    return texts


@pytest.mark.heavy
def test_no_text_has_other_ids_than_an_independent_tokenizer_gives(real: GemmaTokenizer) -> None:
    """Thousands of real texts, and every character of two planes, where tokenizer.json is at hand."""
    if VARIABLE not in os.environ:
        pytest.skip(
            f'No tokenizer.json: {VARIABLE} does not name it; tokenizer_reference.py says where it is.'
        )
    if not SHARED.is_dir():
        pytest.skip(f'No real texts at {SHARED}.')
    tokenizers = pytest.importorskip('tokenizers')
    other = tokenizers.Tokenizer.from_file(os.environ[VARIABLE])
    shared = _shared_texts()
    assert len(shared) >= 4000
    characters = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    texts = [*shared, *characters, *(f'x{character}y' for character in characters[:0x3000])]
    differing = list(_differing(real, other, texts))
    # Real texts that spell a control token are the only ones that may differ.
    assert [text for text in differing if not any(piece in text for piece in CONTROL_TEXTS)] == []
    # And it does turn them into control tokens, so that this comparison could fail.
    assert len(list(_differing(real, other, CONTROL_TEXTS))) == len(CONTROL_TEXTS)


@pytest.mark.heavy
def test_merges_of_the_whole_vocabulary_give_the_ids_of_its_scores(
    real: GemmaTokenizer, tmp_path: pathlib.Path
) -> None:
    """Gemma 4 has no scores but in its SentencePiece model: Gemma 3's vocabulary stands for it."""
    merged = GemmaTokenizer(_write_json(tmp_path / 'tokenizer.json', list(real._model.pieces)), '3')
    assert merged.vocab_size == real.vocab_size
    texts = [*tokenizer_reference.texts(), *CONTROL_TEXTS, *(_shared_texts() if SHARED.is_dir() else [])]
    for text, found, expected in zip(
        texts, merged.encode_batch(texts), real.encode_batch(texts), strict=True
    ):
        assert found.tolist() == expected.tolist(), repr(text)


def _differing(real: GemmaTokenizer, other: Any, texts: Sequence[str]) -> Iterator[str]:
    for text, ids in zip(texts, real.encode_batch(texts), strict=True):
        if ids.tolist() != other.encode(text, add_special_tokens=False).ids:
            yield text
