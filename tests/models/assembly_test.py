"""Settings to a working generator: on the bundled model, from its own files."""

import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from models import assembly, prompt_templates, records
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from tests.samples import batch

ROOT = pathlib.Path(__file__).parents[2]
BUNDLED = ROOT / 'models' / 'bundled'
PARAMS = MechanismParams(
    batch_size=4, clip_bound=8.0, temperature=1.5, max_private_tokens=12, max_batch_tokens=24,
    max_example_tokens=8, threshold=0.8, threshold_noise_scale=0.4, unit='user', examples_per_context=2,
)  # fmt: skip
SETTINGS = assembly.GeneratorSettings(
    run_id='run-1',
    params=PARAMS,
    model='bundled',
    checkpoint=str(BUNDLED / 'checkpoint'),
    tokenizer=str(BUNDLED / 'tokenizer.model'),
    dtype='float32',
    micro_batch_size=3,
    max_prompt_tokens=60,
    template=prompt_templates.read_template('pretrained'),
    label_words=(('sports', 'Sports'),),
)


BATCH = batch(
    [('The team won the cup.', 'A late goal decided it.'), ('She ran 10 km.',), ('They lost.',)], index=3
)
EMPTY = batch([], index=3)


def test_settings_survive_pickling_without_weights_or_tokenizer() -> None:
    """Beam ships them to workers: names and numbers alone."""
    pickled = pickle.dumps(SETTINGS)
    assert pickle.loads(pickled) == SETTINGS and len(pickled) < 4000


def test_the_writer_has_every_setting() -> None:
    settings = dataclasses.replace(
        SETTINGS, label_name='Kind', text_name='Line', schema='{}', max_prompt_tokens=77, min_example_tokens=5
    )
    writer = settings.writer()
    assert (writer.label_name, writer.text_name, writer.schema, writer.max_prompt_tokens) == (
        'Kind', 'Line', '{}', 77,
    )  # fmt: skip
    assert writer.min_example_tokens == 5
    assert writer.template is settings.template and writer.label_words == {'sports': 'Sports'}
    assert writer.tokenizer.generation == '3' and writer.tokenizer.vocab_size == 4096


@pytest.mark.parametrize('preset', prompt_templates.PRESETS)
@pytest.mark.parametrize('labels', [['sports', 'undescribed'], [None]])
def test_prompts_that_fit_pass_the_check(preset: str, labels: list[str | None]) -> None:
    settings = dataclasses.replace(
        SETTINGS, template=prompt_templates.read_template(preset), max_prompt_tokens=160, schema='{"a": 1}'
    )
    settings.check_prompts(labels)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'max_prompt_tokens': 5}, 'max_prompt_tokens=5'),
        ({'template': prompt_templates.read_template('instruction-json')}, 'Give --schema FILE'),
        # The public prompt fits, and one text would too, but not two.
        (
            {
                'template': prompt_templates.PromptTemplate(
                    private='{examples}', public='-', example='- - - - {text}\n', stop=()
                ),
                'max_prompt_tokens': 10,
            },
            'leave room for the texts of a context',
        ),
        ({'label_words': (('sports', 'Sports ' * 80),)}, r'max_prompt_tokens=60, got tokens=\d+'),
    ],
)
def test_prompts_that_cannot_work_fail_the_check(change: dict[str, object], message: str) -> None:
    """At the launch, before a record is read or a budget charged."""
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **change).check_prompts(['sports'])


@pytest.mark.first
@pytest.mark.heavy
def test_build_gives_a_generator_that_decodes_a_batch() -> None:
    generator = SETTINGS.build()
    assert generator.params is PARAMS and generator.run_id == 'run-1'
    shapes = generator.decoder.shapes
    assert (shapes.max_prompt_tokens, shapes.max_example_tokens, shapes.micro_batch_size) == (60, 8, 8)
    key = RunKey(bytes(range(32)))
    examples = generator.generate(BATCH, key).examples
    assert examples == generator.generate(BATCH, key).examples
    assert sum(example.private_tokens for example in examples) <= PARAMS.max_private_tokens
    tokens = sum(example.private_tokens + example.public_tokens for example in examples)
    assert tokens == PARAMS.max_batch_tokens or PARAMS.max_private_tokens == sum(
        example.private_tokens for example in examples
    )
    assert {(e.batch_id, e.label) for e in examples} == {('0000-000003', 'sports')}
    assert [e.index_in_batch for e in examples] == list(range(len(examples)))
    assert [e.text for e in generator.generate(EMPTY, key).examples] != [e.text for e in examples]
    # A generator keeps nothing of the batch.
    assert not any(isinstance(value, records.Context | records.Batch) for value in vars(generator).values())


@pytest.mark.run
def test_rows_are_rounded_up_to_blocks_on_every_device(tmp_path: pathlib.Path) -> None:
    """Three rows at a time on two devices are two blocks of eight."""
    path = tmp_path / 'size.npy'
    code = (
        'import sys, numpy; from tests.models import assembly_test; '
        'numpy.save(sys.argv[1], assembly_test.SETTINGS.build().decoder.shapes.micro_batch_size)'
    )
    environment = os.environ | {
        'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
        'JAX_PLATFORMS': 'cpu',
    }
    subprocess.run(
        [sys.executable, '-c', code, str(path)], check=True, cwd=ROOT, env=environment, timeout=500
    )
    assert int(np.load(path)) == 16
