"""A prompt in turns for weights that know none, and the other way round, is said."""

import json
import pathlib

import pytest

from pipeline.methods.predict.settings import PredictSettings
from pipeline.run.prompt_fit import turns_warning
from tests.models.decoders.gemma.gguf_files import write_gguf

TEMPLATE = '{{ bos_token }}<start_of_turn>user'


def settings(checkpoint: pathlib.Path | None, prompt: str | None) -> PredictSettings:
    files = {} if checkpoint is None else {'checkpoint': str(checkpoint), 'tokenizer': 'tokenizer.model'}
    model = 'bundled' if checkpoint is None else 'gemma3-1b'
    return PredictSettings(model=model, prompt=prompt, context_budget=0.1, **files)


def gguf_file(folder: pathlib.Path, *, chat: bool) -> pathlib.Path:
    general = {'tokenizer.chat_template': TEMPLATE} if chat else {}
    return write_gguf(folder / 'model.gguf', 'gemma3', {}, {}, general=general)


def hub_folder(folder: pathlib.Path, *, chat: bool) -> pathlib.Path:
    (folder / 'model.safetensors').touch()
    config = {'chat_template': TEMPLATE} if chat else {'bos_token': '<bos>'}
    (folder / 'tokenizer_config.json').write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize('write', [gguf_file, hub_folder])
@pytest.mark.parametrize(
    'chat, prompt, said',
    [
        (True, None, "prompt='document' has no turns. Try --prompt instruction."),
        (True, 'instruction', None),
        (False, 'instruction-pairs', "prompt='instruction-pairs' asks in turns"),
        (False, None, None),
    ],
)
def test_a_wrong_pair_is_said(
    tmp_path: pathlib.Path, write: object, chat: bool, prompt: str | None, said: str | None
) -> None:
    assert callable(write)
    found = turns_warning(settings(write(tmp_path, chat=chat), prompt))
    assert (found is None) if said is None else (found is not None and said in found)


def test_newer_folders_have_a_file_of_their_own(tmp_path: pathlib.Path) -> None:
    hub_folder(tmp_path, chat=False)
    (tmp_path / 'chat_template.jinja').write_text(TEMPLATE)
    assert turns_warning(settings(tmp_path, None)) is not None


def test_where_nothing_tells_nothing_is_said(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'model.safetensors').touch()
    assert turns_warning(settings(tmp_path, 'instruction')) is None
    # Weights of the Orbax format, and not tuned for turns.
    assert turns_warning(settings(None, None)) is None


def test_a_damaged_file_is_said(tmp_path: pathlib.Path) -> None:
    hub_folder(tmp_path, chat=True)
    (tmp_path / 'tokenizer_config.json').write_text('{')
    with pytest.raises(ValueError, match='Expected a JSON object'):
        turns_warning(settings(tmp_path, None))
