"""Each method that samples, whole and through Beam, with a small Gemma 4 of random weights.

Its files are those of a user: a folder as the hub has it, and a vocabulary of its generation, whose turns
have other names. Nothing is asked of what it writes.
"""

import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from safetensors.numpy import save_file
from sentencepiece import sentencepiece_model_pb2

from models import bundled
from models.decoders.gemma import architectures
from pipeline.asked.config import job_config
from pipeline.run.prompt_fit import turns_warning
from pipeline.settings.prompt import Prompt
from tests.command_line import in_this_process
from tests.launched import launch, report_of, rows_of
from tests.models.decoders.gemma import converted, library_models
from tests.samples import write_rows

pytestmark = pytest.mark.run

MODEL = 'gemma4-tiny'
ARCHITECTURE = architectures.GemmaArchitecture(
    num_embed=4096, embed_dim=32, hidden_dim=48, num_heads=4, head_dim=8, num_kv_heads=1,
    attention_types=('local', 'global', 'local', 'global'), generation='4', sliding_window_size=16,
    final_logit_softcap=30.0, use_qk_norm=True, query_pre_attn_scalar=1, transpose_gating_einsum=True,
    norms_add_one=False, normalizes_values=True, global_base_frequency=1_000_000, global_rotary_share=0.25,
    global_head_dim=16, num_kv_shared_layers=2, kv_shared_hidden_dim=96, per_layer_dim=16, scales_layers=True,
)  # fmt: skip
LABELS = ('billing', 'delivery')
CANARY = 'xqzzarn'
ROWS = [
    {'text': f'{word} of {CANARY} {number}', 'label': LABELS[number % 2], 'id': str(number)}
    for number in range(24)
    for word in [('an invoice', 'a parcel')[number % 2]]
]
# A model of random weights writes no words.
REGEX = '(invoice|parcel)( (late|paid|lost))+'
# Settings of each method beside those of all.
GIVEN: dict[str, dict[str, Any]] = {
    'predict': {
        'batches_per_label': 1, 'batch_size': 8, 'aggregate': 'mean',
        'max_private_tokens': 8, 'max_prompt_tokens': 160, 'max_example_tokens': 8,
    },
    'fine-tune': {
        'epsilon': 4.0, 'tuning_steps': 2, 'expected_batch_size': 6, 'lora_rank': 2, 'max_prompt_tokens': 96,
        'max_example_tokens': 10, 'examples_per_label': 3,
    },
    'evolve': {
        'epsilon': 30.0, 'rounds': 1, 'candidates': 8, 'examples': 6, 'nearest': 2, 'max_prompt_tokens': 160,
        'max_example_tokens': 16, 'regex': REGEX,
    },
    'tune-refine': {
        'epsilon': 20.0, 'tuning_steps': 2, 'expected_batch_size': 6, 'lora_rank': 2, 'candidates': 8,
        'examples': 4, 'nearest': 1, 'max_prompt_tokens': 96, 'max_example_tokens': 16,
        'regex': REGEX,
    },
}  # fmt: skip


@pytest.fixture(autouse=True, scope='module')
def _known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(architectures.ARCHITECTURES, MODEL, ARCHITECTURE)
        yield


@pytest.fixture(scope='module')
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings that name the model's folder and its vocabulary, of which the bundled one is the most."""
    folder = tmp_path_factory.mktemp('gemma4')
    parameters = library_models.random_parameters(ARCHITECTURE, seed=2)
    hub, _ = converted.hub_and_gguf(ARCHITECTURE, parameters)
    save_file(hub, folder / 'model.safetensors')
    (folder / 'config.json').write_text(json.dumps(converted.config(ARCHITECTURE)))
    vocabulary = sentencepiece_model_pb2.ModelProto.FromString(pathlib.Path(bundled.TOKENIZER).read_bytes())
    for index, name in ((105, '<|turn>'), (106, '<turn|>')):
        vocabulary.pieces[index].piece = name
    (folder / 'tokenizer.model').write_bytes(vocabulary.SerializeToString())
    return {'model': MODEL, 'checkpoint': str(folder), 'tokenizer': str(folder / 'tokenizer.model')}


@pytest.mark.parametrize('method', [pytest.param('predict', marks=pytest.mark.first), *list(GIVEN)[1:]])
def test_a_run_ends_with_texts_and_its_report(
    method: str, files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    config = job_config(
        method=method, input=str(tmp_path / 'in.jsonl'), output=str(tmp_path / 'out'), delta=1e-2,
        label_field='label', labels=LABELS, record_id_field='id', records=24, micro_batch_size=8,
        dtype='float32', shards=1, prompt='instruction', **files, **GIVEN[method],
    )  # fmt: skip
    launch(config, [])
    report, rows = report_of(tmp_path / 'out'), rows_of(tmp_path / 'out')
    assert report.settings['model'] == MODEL and report.epsilon is not None and report.epsilon > 0
    assert rows and all(row['label'] in LABELS for row in rows)
    released = b''.join(path.read_bytes() for path in (tmp_path / 'out').rglob('*') if path.is_file())
    assert CANARY.encode() not in released


def test_instruction_tuned_weights_are_not_given_the_document_prompt(
    files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / 'tuned'
    shutil.copytree(files['checkpoint'], folder)
    (folder / 'chat_template.jinja').write_text('{{ messages }}')
    given = files | {'checkpoint': str(folder)}
    for prompt, remedy in (('document', 'Try --prompt instruction'), ('instruction', None)):
        settings = job_config(epsilon=1.0, delta=1e-6, prompt=prompt, **given).method
        assert isinstance(settings, Prompt)
        warning = turns_warning(settings)
        assert warning is None if remedy is None else remedy in str(warning)


def test_a_vocabulary_of_another_generation_is_refused(files: dict[str, str], tmp_path: pathlib.Path) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    done = in_this_process(
        'generate', '--model', MODEL, '--checkpoint', files['checkpoint'], '--tokenizer',
        str(bundled.TOKENIZER), '--records', '24', '--epsilon', '20', '--delta', '1e-2', '--batch-size', '8',
        '--input', str(tmp_path / 'in.jsonl'), '--output', str(tmp_path / 'out'),
    )  # fmt: skip
    assert done.returncode and "'<|turn>' at id 105 of a Gemma 4 tokenizer" in done.stderr
