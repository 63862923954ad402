"""The plan of votes on whole texts: its figures, its words, its warnings, and what every flag does to it."""

import dataclasses
import json
import pathlib
import sys
from typing import Any

import pytest

from models.extras import MissingExtraError
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.evolve import plan
from pipeline.plan import planned
from pipeline.settings.job_config import JobConfig
from tests.command_line import Done, in_this_process
from tests.documents import check_document

GIVEN: dict[str, Any] = {
    'method': 'evolve', 'records': 10_000, 'delta': 1e-6, 'epsilon': 2.0, 'label_field': 'label',
    'labels': ('billing', 'delivery'), 'rounds': 2, 'candidates': 130, 'examples': 50, 'nearest': 4,
}  # fmt: skip


def config(**changed: Any) -> JobConfig:
    return job_config(**(GIVEN | changed))


def test_figures_are_those_of_the_mechanism() -> None:
    found, params = plan.plan_run(methods.solve(config())), methods.solve(config()).params
    assert (found.rounds, found.candidates, found.nearest, found.examples) == (2, 130, 4, 50)
    assert found.vote_noise == params.noise_scale and found.rho_total == params.rho
    assert found.epsilon == params.epsilon(1e-6) <= 2.0
    # One digit of noise less would be too dear.
    less = dataclasses.replace(params, noise_scale=params.noise_scale * (1 - 1e-5))
    assert less.epsilon(1e-6) > 2.0
    assert found.votes_of_candidate == pytest.approx(10_000 * 4**0.5 / 180)
    # Each label has 65 candidates in the first round, 25 texts more in the second, and 25 after it.
    assert found.sampled_texts == 2 * 65 + 2 * 25 + 2 * 25
    assert found.warnings == ()
    check_document('plan', found.to_json())


@pytest.mark.parametrize(
    'changed',
    [
        {}, {'candidates': 128}, {'candidates': 129}, {'candidates': 1}, {'rounds': 1}, {'rounds': 5},
        {'examples': 1}, {'examples': 500}, {'labels': (), 'label_field': None},
        {'labels': tuple('abcdefg')}, {'rounds': None, 'candidates': None},
    ],
    ids=str,
)  # fmt: skip
def test_planned_batches_are_those_that_are_sampled(changed: dict[str, Any]) -> None:
    run = config(model='bundled', **changed)
    prepared = methods.of(run).prepare(methods.solve(run, launch=True))
    planned = list(methods.solve(run).batch_plan.batch_ids())
    sampled = [
        batch for number in range(1, prepared.params.rounds + 2) for batch, _ in prepared.batches_of(number)
    ]
    assert sorted(planned) == sorted(sampled) and len(set(sampled)) == len(sampled)
    sizes = [
        size for number in range(1, prepared.params.rounds + 2) for _, size in prepared.batches_of(number)
    ]
    assert sum(sizes) == methods.solve(run).sampled_texts and max(sizes) <= 64
    assert prepared.batches_per_label == methods.solve(run).batch_plan.batches_per_group[0]


@pytest.mark.parametrize(
    'changed, said',
    [
        ({'records': 30, 'nearest': 1}, 'votes drown in it. Lower --candidates or --rounds, raise --nearest'),
        ({'epsilon': 0.01}, 'or bring more records'),
        (
            {'epsilon': 0.001, 'unit': 'user', 'unit_field': 'user'},
            'or bring more users',
        ),
        ({'delta': 1e-3}, 'That is not below 1/n'),
    ],
)
def test_what_to_think_about_before(changed: dict[str, Any], said: str) -> None:
    (warning,) = plan.plan_run(methods.solve(config(**changed))).warnings
    assert said in warning


def test_every_setting_of_the_plan_does_something() -> None:
    whole = json.loads(plan.plan_run(methods.solve(config())).to_json())
    for changed, figures in (
        ({'rounds': 3}, {'rounds', 'vote_noise', 'sampled_texts'}),
        ({'candidates': 400}, {'candidates', 'votes_of_candidate', 'sampled_texts'}),
        ({'examples': 60}, {'examples', 'sampled_texts'}),
        ({'nearest': 1}, {'nearest', 'votes_of_candidate'}),
        ({'epsilon': 1.0}, {'epsilon', 'vote_noise', 'rho_total'}),
        ({'epsilon': None, 'vote_noise': 1.5}, {'epsilon', 'vote_noise', 'rho_total'}),
        ({'records': 20_000}, {'votes_of_candidate'}),
        ({'sample_rate': 0.5}, {'votes_of_candidate'}),
        ({'labels': ('a', 'b', 'c')}, {'sampled_texts'}),
    ):
        found = json.loads(plan.plan_run(methods.solve(config(**changed))).to_json())
        differ = {name for name in whole if found[name] != whole[name]}
        assert differ >= figures, changed


def test_texts_are_decoded_to_their_cap_and_later_ones_after_a_prompt() -> None:
    sizes = {'max_example_tokens': 32, 'max_prompt_tokens': 128}
    run = methods.solve(config(**sizes))
    # Two labels: 65 first ones of each, and 25 + 25 around texts that votes favoured.
    assert run.tokens == {'decoding': 2 * (65 * 32 + 50 * (32 + 128))}
    # An endpoint decodes elsewhere, and the model reads records only where it embeds them.
    asked = methods.solve(config(**sizes, endpoint='http://localhost:1/v1', endpoint_model='any'))
    assert asked.tokens == {'decoding': 0}
    own = methods.solve(config(**sizes, embedder='decoder'))
    assert own.tokens['decoding'] - run.tokens['decoding'] == 10_000 * 128


def test_embedding_takes_time_for_each_record() -> None:
    hours = {
        embedder: plan.plan_run(methods.solve(config(embedder=embedder))).embedding_hours
        for embedder in ('tfidf', 'minilm', 'decoder')
    }
    assert hours == {'tfidf': pytest.approx(4 / 3600), 'minilm': pytest.approx(120 / 3600), 'decoder': 0}


def test_an_endpoint_samples_at_its_own_pace() -> None:
    found = planned.planned(config(endpoint='http://localhost:1/v1', endpoint_model='any'))
    assert ('Sampling', 'at the pace of the endpoint') in found.rows()
    assert found.estimate is not None and found.estimate.memory_bytes == 0
    assert found.computing_hours() is None
    check_document('plan', found.to_json())


# --- The command line ------------------------------------------------------------

FLAGS = (
    '--method', 'evolve', '--records', '10000', '--delta', '1e-6', '--epsilon', '2', '--label-field', 'label',
    '--labels', 'billing,delivery', '--rounds', '2', '--candidates', '130', '--examples', '50',
    '--nearest', '4',
)  # fmt: skip


def call(*arguments: str, code: int = 0) -> Done:
    done = in_this_process(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    'arguments, said',
    [
        (
            ('--batch-size', '8'),
            "no batch_size with method='evolve', got batch_size=8. Records vote on whole",
        ),
        (('--clip-bound', '8'), 'A vote is one for each unit. Leave it out.'),
        (('--examples-per-label', '8'), 'give --examples, of all labels. Leave it out.'),
        (('--tuning-steps', '8'), 'It is a setting of --method fine-tune and tune-refine. Leave it out.'),
        (('--keep', '8'), 'It is a setting of --method refine. Leave it out.'),
        (('--vote-noise', '8'), 'Expected either epsilon or vote_noise'),
        (('--rounds', '21'), 'Expected rounds <= 20'),
        (('--fresh-share', '1.5'), 'Expected 0 <= fresh_share <= 1'),
        (('--endpoint', 'http://localhost/v1'), 'Expected endpoint and endpoint_model together'),
        (
            ('--endpoint', 'http://localhost/v1', '--endpoint-model', 'x', '--regex', 'a'),
            'Expected no structure with an endpoint',
        ),
        (('--candidats', '8'), 'No such option'),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in ' '.join(call('plan', *FLAGS, *arguments, code=2).stderr.replace('│', ' ').split())


def test_an_endpoint_with_a_secret_in_it_is_refused_without_showing_it(tmp_path: pathlib.Path) -> None:
    for url in ('http://me:opensesame@localhost/v1', 'http://localhost/v1?key=opensesame'):
        run = config(endpoint=url, endpoint_model='any')
        with pytest.raises(ValueError, match='Expected the URL of an endpoint without') as failed:
            methods.of(run).prepare(methods.solve(run, launch=True))
        assert 'opensesame' not in str(failed.value)


def test_without_the_endpoints_token_a_local_run_is_refused_before_it_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv('TOKEN_OF_A_TEST', raising=False)
    asked = {
        'endpoint': 'http://localhost:1/v1',
        'endpoint_model': 'any',
        'endpoint_token': 'TOKEN_OF_A_TEST',
    }
    with pytest.raises(ValueError, match='Expected a token .* TOKEN_OF_A_TEST, got none'):
        methods.of(config(**asked)).prepare(methods.solve(config(**asked), launch=True))
    # The workers of another machine have an environment of their own.
    elsewhere = config(**asked, runner='FlinkRunner')
    methods.of(elsewhere).prepare(methods.solve(elsewhere, launch=True))
    monkeypatch.setenv('TOKEN_OF_A_TEST', 'opensesame')
    methods.of(config(**asked)).prepare(methods.solve(config(**asked), launch=True))


def test_without_the_client_a_local_run_is_refused_before_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'openai', None)
    run = config(endpoint='http://localhost:1/v1', endpoint_model='any')
    with pytest.raises(MissingExtraError, match=r"without libraries=\['openai'\]. Run .*\[endpoint\]'"):
        methods.of(run).prepare(methods.solve(run, launch=True))


def test_prompts_without_room_for_the_texts_of_later_rounds_are_refused_before_it_pays() -> None:
    short = config(max_prompt_tokens=50, max_example_tokens=64)
    with pytest.raises(ValueError, match='Expected prompts with room for shots=3 texts .*which leaves'):
        methods.of(short).prepare(methods.solve(short, launch=True))
    methods.of(short).prepare(methods.solve(short.replace(shots=1), launch=True))
    # No text has to fit where no prompt shows one.
    methods.of(short).prepare(methods.solve(short.replace(rounds=1, unvoted=0), launch=True))


def test_the_input_is_checked_for_it(tmp_path: pathlib.Path) -> None:
    rows = [
        {'text': f'record {number}', 'label': ('billing', 'delivery', 'x')[number % 3]} for number in range(9)
    ]
    (tmp_path / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    found = call('check', *FLAGS, '--input', str(tmp_path / 'in.jsonl'), '--json')
    checked = json.loads(found.stdout)
    # Records of an undeclared label are none of the run's.
    assert (checked['records'], checked['batch_size']) == (6, 1)
    shown = call('check', *FLAGS, '--input', str(tmp_path / 'in.jsonl')).stdout
    assert 'billing' in shown and 'batches' not in shown
