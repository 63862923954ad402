"""An endpoint with OpenAI's completions API on this machine: the bundled model answers, or bad manners do.

    python -m tests.completions_server

prints its port and serves until its input ends. A prompt with a word in square brackets is answered as the
word says, by `BEHAVIOURS`; every other one by the bundled model. `GET /seen` tells what was asked so far.
"""

import contextlib
import functools
import gzip
import http.server
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_PROMPT_TOKENS, MAX_TOKENS = 128, 32
HANGS_SECONDS = 30.0


class _Server(http.server.ThreadingHTTPServer):
    """Remembers what it was asked.

    Attributes:
        seen: Path, headers by their names in lower case, and body of each request.
        times: Number of requests with each seed so far.
        at_once: Requests that are being answered.
        most_at_once: The most so far.
        showing: Prompts so far that show words of `_WORDS`, of those that are looked at for them.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.seen: list[dict[str, Any]] = []
        self.times: Counter[int] = Counter()
        self.at_once = self.most_at_once = self.showing = 0
        self.lock = threading.Lock()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = 'HTTP/1.1'
    # An answer is written in two pieces, and the second would wait for 40 ms.
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self.answer({'seen': self.server.seen, 'most_at_once': self.server.most_at_once})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        with self.server.lock:
            self.server.seen.append({'path': self.path, 'headers': _lower(self.headers), 'body': body})
            self.server.times[body['seed']] += 1
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        try:
            word = re.search(r'\[([a-z0-9-]+)\]', body['prompt'])
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                (BEHAVIOURS[word[1]] if word else _of_the_model)(self, body)
        finally:
            with self.server.lock:
                self.server.at_once -= 1

    def answer(
        self, body: object = None, *, content: bytes | None = None, status: int = 200, **headers: str
    ) -> None:
        data = json.dumps(body).encode() if content is None else content
        self.send_response(status)
        for name, value in {'Content_Type': 'application/json', **headers}.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def complete(self, text: str, *, finish_reason: str = 'stop', tokens: object = 7, **headers: str) -> None:
        choice = {'text': text, 'index': 0, 'finish_reason': finish_reason, 'logprobs': None}
        self.answer({'choices': [choice], 'usage': {'completion_tokens': tokens}}, **headers)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


# --- The bundled model -----------------------------------------------------------

_one_at_a_time = threading.Lock()


@functools.cache
def _model() -> tuple[Any, Any, Callable[..., Any], Callable[..., Any]]:
    """Decoder, tokenizer, and the compiled output layer and step."""
    import jax

    from models.decoders import decoder, family

    files = family.files_of('bundled')
    shapes = decoder.Shapes(
        max_prompt_tokens=MAX_PROMPT_TOKENS,
        max_example_tokens=MAX_TOKENS,
        micro_batch_size=family.ROWS_MULTIPLE,
        rows_multiple=family.ROWS_MULTIPLE,
    )
    of = family.family_of('bundled')
    loaded = of.load_decoder('bundled', files.checkpoint, shapes=shapes, dtype='float32')
    tokenizer = of.load_tokenizer('bundled', files.tokenizer)
    return loaded, tokenizer, jax.jit(loaded.logits), jax.jit(loaded.step)


def _of_the_model(handler: _Handler, body: dict[str, Any]) -> None:
    """Token by token, the nucleus by a sort."""
    import numpy as np

    with _one_at_a_time:
        decoder, tokenizer, logits_of, step = _model()
        prompt = np.array([*tokenizer.start_tokens, *tokenizer.encode_batch([body['prompt']])[0]], np.int32)
        if len(prompt) > MAX_PROMPT_TOKENS or body['max_tokens'] > MAX_TOKENS:
            return handler.answer({'error': {'message': 'too long'}}, status=400)
        states, cache = decoder.prefill([prompt] * decoder.shapes.micro_batch_size)
        draws = np.random.default_rng(body['seed'])
        tokens: list[int] = []
        text, reason = '', 'length'
        for place in range(body['max_tokens']):
            logits = np.asarray(logits_of(decoder.weights, states[0]))[0].astype(float) / body['temperature']
            logits[~tokenizer.released_token_mask(len(logits))] = -np.inf
            shares = np.exp(logits - logits.max())
            order = np.argsort(-shares)
            sums = np.cumsum(shares[order]) / shares.sum()
            kept = order[: 1 + int(np.searchsorted(sums, body['top_p']))]
            tokens.append(int(draws.choice(kept, p=shares[kept] / shares[kept].sum())))
            found = tokenizer.decode_batch([tokens])[0]
            ends = [found.find(stop) for stop in body.get('stop', ()) if stop in found]
            text = found[: min(ends, default=len(found))]
            if ends or tokens[-1] in tokenizer.stop_tokens:
                reason = 'stop'
                break
            states, cache = step(decoder.weights, cache, np.int32(tokens[-1]), np.int32(place))
    return handler.complete(text, finish_reason=reason, tokens=len(tokens))


# --- Bad manners -----------------------------------------------------------------


def _fails(status: int, times: int, **headers: str) -> Callable[[_Handler, dict[str, Any]], None]:
    """Says what it was sent, as often, and then answers."""

    def behave(handler: _Handler, body: dict[str, Any]) -> None:
        if handler.server.times[body['seed']] <= times:
            sent = f'{handler.headers.get("Authorization")} {body["prompt"]}'
            return handler.answer({'error': {'message': sent}}, status=status, **headers)
        return handler.complete(f'after {times}')

    return behave


def _hang(handler: _Handler, _: dict[str, Any]) -> None:
    time.sleep(HANGS_SECONDS)


def _drip(handler: _Handler, _: dict[str, Any]) -> None:
    """A byte each tenth of a second: no single wait is long."""
    handler.send_response(200)
    handler.send_header('Content-Length', '100000')
    handler.end_headers()
    for _ in range(int(10 * HANGS_SECONDS)):
        handler.wfile.write(b' ')
        time.sleep(0.1)


def _slow(handler: _Handler, _: dict[str, Any]) -> None:
    time.sleep(0.2)
    handler.complete('slow')


# No prompt of a label has one of them.
_WORDS = ('parcel', 'courier', 'shipping', 'late', 'road', 'refund', 'payment', 'price', 'account', 'charged')


def _words(handler: _Handler, body: dict[str, Any]) -> None:
    handler.complete(f' {" ".join(random.Random(body["seed"]).sample(_WORDS, 3))}')


def _words_and_401(handler: _Handler, body: dict[str, Any]) -> None:
    """Refuses the first eight prompts that show words of its own."""
    with handler.server.lock:
        handler.server.showing += any(word in body['prompt'] for word in _WORDS)
        is_refused = 0 < handler.server.showing <= 8
    if is_refused:
        return handler.answer({'error': {'message': body['prompt']}}, status=401)
    return _words(handler, body)


def _says(text: str, **how: Any) -> Callable[[_Handler, dict[str, Any]], None]:
    return lambda handler, _: handler.complete(text, **how)


def _sends(content: bytes, **headers: str) -> Callable[[_Handler, dict[str, Any]], None]:
    return lambda handler, _: handler.answer(content=content, **headers)


BEHAVIOURS: dict[str, Callable[[_Handler, dict[str, Any]], None]] = {
    'quick': lambda handler, body: handler.complete(f' of seed {body["seed"]}'),
    'slow': _slow,
    'words': _words,
    'words-and-401': _words_and_401,
    'fails-twice': _fails(500, 2),
    'busy-once': _fails(429, 1, Retry_After='1'),
    'always-500': _fails(500, 1000),
    'always-401': _fails(401, 1000),
    'always-404': _fails(404, 1000),
    'always-400': _fails(400, 1000),
    'redirect': lambda handler, _: handler.answer({}, status=307, Location='/elsewhere/completions'),
    'hang': _hang,
    'drip': _drip,
    'cut': lambda handler, _: handler.connection.shutdown(socket.SHUT_RDWR),
    'garbage': _sends(b'{"choices": [{"te'),
    'bytes': _sends(bytes(range(256))),
    'html': _sends(b'<html>It works!</html>', Content_Type='text/html'),
    'no-choices': _sends(b'{"choices": [], "usage": {"completion_tokens": 3}}'),
    'other-type': _says(' fine', Content_Type='text/html'),
    'long': _says('x' * 100_000),
    'huge': _says('x' * 50_000_000),
    'huge-error': _sends(b'x' * 50_000_000, status=500),  # type: ignore[arg-type]
    'zipped': _sends(gzip.compress(b'{"choices": [{"text": "zipped"}]}'), Content_Encoding='gzip'),
    'odd': _says(' a\0b\ud800c', tokens=-1),
    'short': _says(' and so on', finish_reason='length'),
    'past-stop': _says(' one line\nand more<end_of_turn>', finish_reason='length'),
}


# --- For tests -------------------------------------------------------------------


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Starts a server in a process of its own; gives its URL, without the path."""
    process = subprocess.Popen(
        [sys.executable, '-m', 'tests.completions_server'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout and process.stdin
        try:
            yield f'http://127.0.0.1:{int(process.stdout.readline())}'
        finally:
            process.stdin.close()


def seen(url: str) -> dict[str, Any]:
    """The requests to a server so far, as `seen`, and `most_at_once`."""
    with urllib.request.urlopen(f'{url}/seen') as answer:
        return json.load(answer)


def main() -> None:
    """Serves until the input ends."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    main()
