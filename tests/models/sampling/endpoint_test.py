"""An endpoint's texts: what leaves for it, what comes of its answers, and where a run stops.

Against a real server in a process of its own, which the bundled model answers for, or bad manners.
"""

import dataclasses
import json
import logging
import math
import pathlib
import pickle
import socket
import subprocess
import sys
import time
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.privacy.randomness import RunKey
from models.prompt_templates import PRESETS, PromptTemplate
from models.prompts import PlainPrompts
from models.records import Batch, Context, Record
from models.sampling import answers, source
from models.sampling.endpoint import EndpointSettings, EndpointSource
from models.sampling.source import Request, SampledText
from tests import completions_server
from tests.samples import ROOT, SECRET, needs_model

KEY = RunKey(SECRET)
TOKEN = 'sk-1234-very-secret'
VARIABLE = 'TOKEN_OF_THE_ENDPOINT'
TOKENS = 12
PLAIN = PlainPrompts(template=PRESETS['document'])


@pytest.fixture(scope='module')
def server() -> Iterator[str]:
    with completions_server.running() as url:
        yield url


def _settings(url: str, /, **values: Any) -> EndpointSettings:
    return EndpointSettings(**{
        'url': f'{url}/v1',
        'model': 'a-model',
        'template': PRESETS['document'],
        'max_example_tokens': TOKENS,
        'timeout': 10.0,
        'retries': 2,
    } | values)  # fmt: skip


def _asked(*labels: str, first: int = 0) -> list[Request]:
    return [Request(name=f'0000-{first + index:06}', label=label) for index, label in enumerate(labels)]


def _texts(found: list[SampledText | None]) -> list[str | None]:
    return [None if one is None else one.text for one in found]


# --- Texts -----------------------------------------------------------------------


@pytest.mark.first
@needs_model
@pytest.mark.run
def test_a_model_behind_an_endpoint_writes_texts(server: str) -> None:
    # The server's first text takes what it takes to load the model.
    values = {'template': PRESETS['pretrained'], 'temperature': 1.5, 'top_p': 0.95, 'timeout': 60.0}
    endpoint = EndpointSource(_settings(server, **values))
    requests = _asked('Sports', 'Business', 'Sports')
    found = endpoint.sample(requests, KEY)
    assert all(one is not None and '```' not in one.text and 1 <= one.tokens <= TOKENS for one in found)
    assert all(one.truncated <= (one.tokens == TOKENS) for one in found if one is not None)
    assert len(set(_texts(found))) == 3
    # The same texts by another source, one at a time and in another order.
    again = EndpointSource(_settings(server, **values, requests_at_once=1))
    assert again.sample(requests[::-1], KEY) == found[::-1]
    assert _texts(endpoint.sample(requests, RunKey(bytes(32)))) != _texts(found)


@pytest.mark.run
def test_only_the_prompt_and_public_settings_leave(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ('OPENAI_API_KEY', 'of-another'),
        ('OPENAI_ADMIN_KEY', 'of-another'),
        ('OPENAI_ORG_ID', 'of-another'),
        ('OPENAI_PROJECT_ID', 'of-another'),
        ('OPENAI_BASE_URL', 'http://of-another.invalid'),
        ('OPENAI_CUSTOM_HEADERS', 'X-Mine: of-another\nAuthorization: of-another'),
        (VARIABLE, f'{TOKEN}\n'),
    ):
        monkeypatch.setenv(name, value)
    before = len(completions_server.seen(server)['seen'])
    request = Request(name='0000-000000', label='[quick]', examples=('One,  released.', 'Two\nreleased.'))
    settings = _settings(server, token_variable=VARIABLE, top_p=0.9)
    (found,) = EndpointSource(settings).sample([request], KEY)
    (asked,) = completions_server.seen(server)['seen'][before:]
    seed = int.from_bytes(KEY.hash('endpoint seed', b'0000-000000', size=8), 'little') % 2**31
    corpus = 'A collection of texts, one after another.\n\n'
    shown = ''.join(f'Label: [quick]\nText:\n{text}\n\n' for text in ('One, released.', 'Two released.'))
    assert asked['path'] == '/v1/completions'
    assert asked['body'] == {
        'model': 'a-model', 'prompt': f'{corpus}{shown}Label: [quick]\nText:\n', 'max_tokens': TOKENS,
        'temperature': 1.0, 'top_p': 0.9, 'seed': seed, 'stop': ['\n'],
    }  # fmt: skip
    assert asked['headers']['authorization'] == f'Bearer {TOKEN}'
    assert 'of-another' not in json.dumps(asked)
    assert asked['headers'].keys() <= {
        'host', 'accept', 'connection', 'user-agent', 'content-type', 'content-length', 'authorization',
        'x-stainless-raw-response',
    }  # fmt: skip
    assert found == SampledText(text=f'of seed {seed}', tokens=7, truncated=False)
    # No token, and none of another endpoint's either.
    EndpointSource(_settings(server)).sample([request], KEY)
    assert 'authorization' not in completions_server.seen(server)['seen'][-1]['headers']


@pytest.mark.run
def test_so_many_requests_wait_at_once() -> None:
    with completions_server.running() as url:
        endpoint = EndpointSource(_settings(url, requests_at_once=3))
        begin = time.monotonic()
        assert _texts(endpoint.sample(_asked(*9 * ['[slow]']), KEY)) == 9 * ['slow']
        assert time.monotonic() - begin >= 0.6
        assert completions_server.seen(url)['most_at_once'] == 3
        assert endpoint.sample([], KEY) == []


# --- Bad manners -----------------------------------------------------------------


@pytest.mark.run
def test_what_passes_is_asked_for_again_with_the_same_seed(server: str) -> None:
    before = len(completions_server.seen(server)['seen'])
    found = EndpointSource(_settings(server)).sample(_asked('[fails-twice]', '[busy-once]', first=100), KEY)
    assert _texts(found) == ['after 2', 'after 1']
    bodies = [one['body'] for one in completions_server.seen(server)['seen'][before:]]
    assert len(bodies) == 5 and len({json.dumps(body) for body in bodies}) == 2


@pytest.mark.run
@pytest.mark.parametrize(
    'manner',
    [
        'hang', 'drip', 'cut', 'always-500', 'always-401', 'huge', 'huge-error', 'garbage', 'bytes', 'html',
        'no-choices', 'zipped', 'redirect',
    ],
)  # fmt: skip
def test_a_request_without_an_answer_costs_its_own_text_alone(server: str, manner: str) -> None:
    begin = time.monotonic()
    endpoint = EndpointSource(_settings(server, timeout=0.6, retries=1))
    found = endpoint.sample(_asked('[other-type]', f'[{manner}]', '[other-type]', first=200), KEY)
    assert _texts(found) == ['fine', None, 'fine']
    assert time.monotonic() - begin < 15


@pytest.mark.run
def test_an_answer_is_cut_and_cleaned(server: str) -> None:
    endpoint = EndpointSource(_settings(server))
    found = endpoint.sample(_asked('[long]', '[odd]', '[short]', '[past-stop]', first=300), KEY)
    assert found == [
        SampledText(text='x' * 16 * TOKENS, tokens=7, truncated=True),
        SampledText(text='a\ufffdb\ufffdc', tokens=3, truncated=False),
        SampledText(text='and so on', tokens=7, truncated=True),
        SampledText(text='one line', tokens=7, truncated=False),
    ]


@pytest.mark.run
@pytest.mark.parametrize(
    'manner, error, match',
    [
        ('always-500', ConnectionError, "'status 500': 3"),
        ('hang', ConnectionError, "'no answer in time': 3"),
        ('cut', ConnectionError, "'no connection': 3"),
        ('always-401', ValueError, "'status 401': 3.*token in TOKEN_OF_THE_ENDPOINT"),
        ('always-404', ValueError, "'status 404': 3.*--endpoint-model"),
        ('always-400', ValueError, "'status 400': 3.*where it does not fit"),
        ('redirect', ValueError, "'status 307': 3"),
    ],
)
def test_an_endpoint_that_answers_nothing_stops_the_run_and_tells_no_secret(
    server: str, manner: str, error: type[Exception], match: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(VARIABLE, TOKEN)
    caplog.set_level(logging.DEBUG)
    settings = _settings(server, token_variable=VARIABLE, timeout=0.5, retries=1, requests_at_once=3)
    endpoint = EndpointSource(settings)
    before = len(completions_server.seen(server)['seen'])
    with pytest.raises(error, match=match) as caught:
        # The rest is not asked for.
        endpoint.sample(_asked(*[f'[{manner}]'] * 3, *['[quick]'] * 20, first=400), KEY)
    assert len(completions_server.seen(server)['seen']) - before <= 6
    assert server in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    output = capfd.readouterr()
    told = ' '.join([repr(caught.value), caplog.text, output.out, output.err, repr(settings), repr(endpoint)])
    assert TOKEN not in told and f'[{manner}]' not in told
    names = {record.name.partition('.')[0] for record in caplog.records}
    assert not names & {'openai', 'httpx', 'httpx2', 'httpcore', 'httpcore2'}
    assert TOKEN.encode() not in pickle.dumps(settings)


def test_an_endpoint_that_is_not_there_stops_the_run() -> None:
    with socket.socket() as taken:
        # Bound, and nobody listens.
        taken.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{taken.getsockname()[1]}'
        with pytest.raises(ConnectionError, match=rf"'no connection': 2.*{url}/v1.*goes on where it stopped"):
            EndpointSource(_settings(url, retries=0)).sample(_asked('a', 'b'), KEY)


# --- Answers are any bytes -------------------------------------------------------

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=300),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(['choices', 'text', 'finish_reason', 'usage', 'completion_tokens']), inner
        )
    ),
    max_leaves=12,
)


@given(_VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200))
@example(b'[' * 200_000)
@example(b'1' * 10_000)
@example(b'{"choices": [{"text": "' + b'\\ud800' * 5000 + b'"}], "usage": {"completion_tokens": true}}')
def test_any_bytes_are_a_text_or_none(content: bytes) -> None:
    found = answers.read_answer(content, PLAIN, TOKENS)
    if found is not None:
        found.text.encode()
        assert len(found.text) <= 16 * TOKENS and 1 <= found.tokens <= TOKENS
        assert '\0' not in found.text and '\n' not in found.text


@given(st.text(st.characters(codec=None), max_size=400), st.sampled_from(['length', 'stop', None]), _VALUES)
def test_a_completion_is_read_as_its_slow_twin_reads_it(text: str, reason: str | None, counted: Any) -> None:
    answer = {
        'choices': [{'text': text, 'finish_reason': reason}], 'usage': {'completion_tokens': counted}
    }  # fmt: skip
    expected, ended = '', False
    # Joins the halves that JSON joins.
    text = json.loads(json.dumps(text))
    for character in text[:192]:
        if character == '\n':
            ended = True
            break
        expected += '\ufffd' if character == '\0' or 0xD800 <= ord(character) < 0xE000 else character
    found = answers.read_answer(json.dumps(answer).encode(), PLAIN, TOKENS)
    assert found is not None
    assert found.text == expected.strip()
    assert found.truncated == (not ended and (reason == 'length' or len(text) > 192))
    if type(counted) is int and 1 <= counted <= TOKENS:
        assert found.tokens == counted


# --- No record gets in -----------------------------------------------------------


@pytest.mark.first
@pytest.mark.run
def test_no_record_gets_in(server: str) -> None:
    private = 'of one person'
    context = Context(context_hash=b'\0' * 16, texts=(private,))
    endpoint = EndpointSource(_settings(server))
    for text in (context, context.texts, [private], private.encode(), type('Field', (str,), {})(private)):
        with pytest.raises(TypeError, match='no record, context or batch may reach it'):
            Request(name='0000-000000', label='[quick]', examples=(text,))  # type: ignore[arg-type]
    for request in (context, private, [private], None):
        with pytest.raises(TypeError, match='public and released texts alone'):
            endpoint.sample([request], KEY)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        endpoint.sample([Request(name='0000-000000', label=context)], KEY)  # type: ignore[arg-type]
    assert private not in json.dumps(completions_server.seen(server))


def test_types_have_no_room_for_a_record() -> None:
    plain = {str, int, float, bytes, bool, types.NoneType}
    private = {Record, Context, Batch}

    def within(hint: Any) -> set[Any]:
        """All types that a hint leads to."""
        inner = [each for each in typing.get_args(hint) if each is not Ellipsis]
        if dataclasses.is_dataclass(hint):
            inner += typing.get_type_hints(hint).values()
        return {hint}.union(*map(within, inner))

    hints = typing.get_type_hints(source.TextSource.sample)
    assert typing.get_type_hints(EndpointSource.sample) == hints
    assert set(hints) == {'requests', 'key', 'return'}
    assert {each for each in within(hints['requests']) if isinstance(each, type)} - plain <= {Request, tuple}
    settings = {each for each in within(EndpointSettings) if isinstance(each, type)}
    assert not settings & private and PromptTemplate in settings


# --- Settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    'values, match',
    [
        ({'url': f'https://user:{TOKEN}@host.example/v1'}, 'without user, password'),
        ({'url': f'https://{TOKEN}@host.example/v1'}, 'without user, password'),
        ({'url': f'https://host.example/v1?api-key={TOKEN}'}, 'query'),
        ({'url': f'https://host.example/v1#{TOKEN}'}, 'fragment'),
        ({'url': f'https://user:{TOKEN}/@host.example/v1'}, 'got another text'),
        ({'url': f'user:{TOKEN}@host.example/v1'}, 'got another text'),
        ({'url': f'https://host.example/v1\n{TOKEN}'}, 'got another text'),
        ({'url': 'file:///etc/passwd'}, 'got another text'),
        ({'url': 'localhost:8000/v1'}, 'got another text'),
        ({'url': ''}, 'got another text'),
        ({'url': 'http://localhost:8000/v1/completions'}, 'End it before'),
        ({'token_variable': TOKEN}, 'never the token'),
        ({'token_variable': ''}, 'never the token'),
        ({'model': ''}, '--endpoint-model'),
        ({'max_example_tokens': 0}, 'max_example_tokens=0'),
        ({'temperature': 0.0}, 'temperature=0.0'),
        ({'temperature': math.nan}, 'temperature=nan'),
        ({'top_p': 1.5}, 'top_p=1.5'),
        ({'requests_at_once': 0}, 'requests_at_once=0'),
        ({'timeout': math.inf}, 'timeout=inf'),
        ({'retries': -1}, 'retries=-1'),
        ({'template': PRESETS['pretrained-json']}, 'schema=None'),
    ],
)
def test_settings_that_cannot_be_or_hold_a_secret_are_refused(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        _settings('http://localhost:8000', **values)
    assert TOKEN not in str(caught.value) and caught.value.__context__ is None


@pytest.mark.parametrize('value', [None, '', ' ', f'{TOKEN} {TOKEN}', f'{TOKEN}\n{TOKEN}', f'{TOKEN}\u00fc'])
def test_a_token_that_is_not_there_is_named_by_its_variable(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    settings = _settings('http://localhost:8000', token_variable=VARIABLE)
    with pytest.raises(ValueError, match=f'variable {VARIABLE}') as caught:
        EndpointSource(settings)
    assert TOKEN not in str(caught.value)


@pytest.mark.run
def test_the_client_is_imported_only_where_it_is_used() -> None:
    code = 'import sys, models.sampling.endpoint; print({"openai", "httpx2"} & set(sys.modules))'
    found = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == 'set()'


# --- A server of others ----------------------------------------------------------

LLAMA = ROOT / '.llama' / 'bin' / 'python'


@pytest.fixture(scope='module')
def llama_url(gemma_file: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama.cpp's server on Gemma 3 270M, which asks for a token."""
    if not LLAMA.is_file() or subprocess.run([LLAMA, '-c', 'import llama_cpp.server.app']).returncode:
        pytest.skip('No server of llama.cpp here: `make llama` installs one, and needs a C compiler.')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    command = [LLAMA, '-m', 'llama_cpp.server', '--model', gemma_file, '--port', port, '--n_ctx', 512]
    command += ['--host', '127.0.0.1', '--n_threads', 2, '--api_key', TOKEN, '--verbose', False]
    log = tmp_path_factory.mktemp('llama') / 'log'
    with (
        log.open('wb') as file,
        subprocess.Popen(list(map(str, command)), stdout=file, stderr=file) as process,
    ):
        try:
            _wait_for(port, process, log)
            yield f'http://127.0.0.1:{port}'
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            pytest.fail(f'The server ended: {log.read_text()[-2000:]}')
        with socket.socket() as trial:
            if trial.connect_ex(('127.0.0.1', port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f'The server does not listen: {log.read_text()[-2000:]}')


@pytest.mark.run
@pytest.mark.heavy
def test_a_server_of_llama_cpp_writes_texts(llama_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    settings = _settings(
        llama_url, max_example_tokens=24, token_variable=VARIABLE, timeout=120.0, top_p=0.95,
        corpus_description='Headlines of the week, one after another.', text_name='Headline',
    )  # fmt: skip
    endpoint = EndpointSource(settings)
    public = [Request(name=f'0000-{index:06}', label='Sports') for index in range(4)]
    around = Request(name='0001-000000', label='Sports', examples=('Rain stops the final in Leeds',) * 2)
    found = endpoint.sample([*public, around], KEY)
    assert all(one is not None and one.text and '\n' not in one.text and one.tokens <= 24 for one in found)
    assert len(set(_texts(found))) >= 4
    # Texts that it has read before move its numbers a little, and so may a text: most are the same.
    again = endpoint.sample(public, KEY)
    assert sum(one == other for one, other in zip(_texts(again), _texts(found))) >= 2
    assert _texts(endpoint.sample(public, RunKey(bytes(32)))) != _texts(found)[:4]
    # Turn markers are control tokens to it, and end an answer.
    turns = EndpointSource(
        dataclasses.replace(settings, template=PRESETS['instruction'], max_example_tokens=64)
    ).sample(public[:1], KEY)
    assert turns[0] is not None and turns[0].text and '<end_of_turn>' not in turns[0].text
    # It is strict about the token and about what fits.
    monkeypatch.setenv(VARIABLE, 'another')
    with pytest.raises(ValueError, match="'status 401': 4"):
        EndpointSource(settings).sample(public, KEY)
    long = Request(name='0002-000000', label='Sports', examples=('Rain stops the final ' * 400,))
    with pytest.raises(ValueError, match="'status 400': 1"):
        endpoint.sample([long], KEY)
