"""Weights and vocabularies with any bytes changed: read, or refused by name, in little time and memory."""

import json
import pathlib
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.numpy

from models.bundled import FOLDER as BUNDLED
from models.decoders.gemma.formats import GGUF, HUB
from models.decoders.gemma.tokenizer import GemmaTokenizer
from models.decoders.transformer import gguf_file
from models.decoders.transformer import safetensors as folders
from tests.models.decoders.gemma.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from tests.models.decoders.gemma.hub_checkpoints import GEMMA3, hub_tensors

SIZES = (0, 1, 7, 8, 9, 2**31 - 1, 2**32 - 1, 2**60, 2**63, 2**64 - 1)
# Memory that a small file may take to be read or refused.
MOST_BYTES = 64 * 2**20
WRONG: tuple[Any, ...] = (None, 'x', -1, 10**30, [], [1, 2], [2**60, 2**60], {}, {'x': 1}, True, 1.5, 'é')


def mutated(data: bytes, upto: int, chance: random.Random) -> bytes:
    """Bytes with some replaced by others or by a size, left out, put in or repeated, or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(max(1, min(len(changed), upto)))
        match chance.randrange(5):
            case 0:
                changed[place : place + 1] = chance.randbytes(1)
            case 1:
                width = chance.choice((4, 8))
                size = chance.choice(SIZES) % 256**width
                changed[place : place + width] = size.to_bytes(width, 'little')
            case 2:
                del changed[place : place + chance.randrange(1, 16)]
            case 3:
                changed[place:place] = changed[: chance.randrange(16)]
            case 4 if chance.random() < 0.2:
                del changed[place:]
    return bytes(changed)


def edited(value: Any, chance: random.Random) -> Any:
    """A JSON document with one value replaced or left out, anywhere."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        rest = {name: other for name, other in value.items() if name != key}
        return rest if chance.random() < 0.1 else {**rest, key: edited(value[key], chance)}
    return chance.choice(WRONG)


def judge(read: Callable[[], Any]) -> str | None:
    """The fault in how a file is taken; None where it is read, or refused in our own words."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        read()
    except (ValueError, FileNotFoundError) as error:
        if not str(error).startswith('Expected '):
            return f'{type(error).__name__}: {str(error)[:100]}'
    except Exception as error:  # noqa: BLE001
        return f'{type(error).__name__}: {str(error)[:100]}'
    peak = tracemalloc.get_traced_memory()[1] - before
    return f'{peak:,} bytes' if peak > MOST_BYTES else None


@pytest.fixture(autouse=True)
def _traced() -> Any:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def tell(tmp_path: pathlib.Path, kind: str, times: int = 400) -> dict[str, int]:
    """The number of times that each fault of the readers of one kind of file was seen."""
    chance = random.Random(kind)
    read = {'gguf': gguf_reader, 'vocabulary': vocabulary_reader, 'safetensors': safetensors_reader}[kind](
        tmp_path, chance
    )
    found: dict[str, int] = {}
    for _ in range(times):
        if (wrong := judge(read)) is not None:
            found[wrong] = found.get(wrong, 0) + 1
    return found


def gguf_reader(folder: pathlib.Path, chance: random.Random) -> Callable[[], None]:
    path = folder / 'model.gguf'
    metadata, tensors = gguf_metadata(GEMMA3), gguf_tensors(GEMMA3, hub_tensors(GEMMA3))
    wrong = ('x', 'é', True, 1.5, [1, 2], [0.5], ['a', 'b'], [True, False])

    def written(**changed: Any) -> bytes:
        return write_gguf(path, 'gemma3', metadata | changed, tensors).read_bytes()

    whole = [written(), *(written(**{key: chance.choice(wrong)}) for key in metadata)]
    whole += [written(**{'rope.scaling.type': [1, 2]}), written(block_count=[1, 2, 3])]

    def read() -> None:
        path.write_bytes(mutated(chance.choice(whole), 1_500, chance) if chance.random() < 0.9 else whole[-1])
        GGUF.check(GEMMA3, path)

    return read


def vocabulary_reader(folder: pathlib.Path, chance: random.Random) -> Callable[[], None]:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString((BUNDLED / 'tokenizer.model').read_bytes())
    del model.pieces[300:]
    names = ('model', 'tokens', 'scores', 'token_type')
    values = (
        'llama', [piece.piece for piece in model.pieces], [piece.score for piece in model.pieces],
        [int(piece.type) for piece in model.pieces],
    )  # fmt: skip
    general = {f'tokenizer.ggml.{name}': value for name, value in zip(names, values, strict=True)}
    path = folder / 'tokenizer.model'
    whole = [model.SerializeToString()]
    for changed in ({}, {'tokenizer.ggml.model': [1, 2]}, {'tokenizer.ggml.token_type': [77] * 300}):
        whole.append(write_gguf(path, 'gemma3', {}, {}, general=general | changed).read_bytes())

    def read() -> None:
        data = chance.choice(whole)
        path.write_bytes(mutated(data, len(data), chance))
        tokenizer = GemmaTokenizer(path, '3')
        tokenizer.token_bytes()
        tokenizer.released_token_mask()

    return read


def safetensors_reader(folder: pathlib.Path, chance: random.Random) -> Callable[[], None]:
    tensors = hub_tensors(GEMMA3)
    whole = safetensors.numpy.save(tensors)
    size = 8 + int.from_bytes(whole[:8], 'little')
    header = json.loads(whole[8:size])
    config = {
        'num_hidden_layers': 3, 'hidden_size': 16, 'rope_theta': 1000, 'sliding_window': 4,
        'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}, 'text_config': {'head_dim': 6},
        'layer_types': ['sliding_attention', 'sliding_attention', 'full_attention'],
        'rope_parameters': {'full_attention': {'rope_theta': 1000}},
    }  # fmt: skip
    index = {'weight_map': dict.fromkeys(tensors, 'model.safetensors')}

    def read() -> None:
        for path in folder.iterdir():
            path.unlink()
        head = json.dumps(edited(header, chance)).encode()
        (folder / 'model.safetensors').write_bytes(
            chance.choice((
                whole, mutated(whole, size, chance), len(head).to_bytes(8, 'little') + head + whole[size:],
            ))
        )  # fmt: skip
        for name, document in (
            ('config.json', config), (folders.INDEX_NAME, index), ('tokenizer_config.json', {'x': {}}),
        ):  # fmt: skip
            if chance.random() < 0.4:
                text = json.dumps(edited(document, chance)).encode()
                (folder / name).write_bytes(
                    chance.choice((text, mutated(text, len(text), chance), b'[' * 100_000))
                )
        folders.has_chat_template(folder)
        HUB.check(GEMMA3, folder)

    return read


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('kind', ['gguf', 'vocabulary', 'safetensors'])
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path: pathlib.Path, kind: str) -> None:
    assert tell(tmp_path, kind) == {}


def test_a_reader_that_trusts_what_a_file_says_is_caught(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(self: Any, count: int) -> bytes:
        return bytes(bytearray(count))

    monkeypatch.setattr(gguf_file._Reader, '_read', trusting)
    path = tmp_path / 'model.gguf'
    path.write_bytes(b'GGUF')
    assert judge(lambda: gguf_file._Reader(path.open('rb'))._read(2**60)) is not None
    assert judge(lambda: bytes(MOST_BYTES + 1)) is not None
    assert judge(lambda: json.loads('[' * 100_000)) is not None
