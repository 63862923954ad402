"""Texts of any endpoint with OpenAI's completions API, such as a server of vLLM or llama.cpp.

What leaves is a request's prompt and public settings, so the endpoint may be anybody's. The token that it may
ask for is read from the environment where the texts are sampled: no setting, no log and no error holds it.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import logging
import math
import os
import re
import time
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from models import extras
from models.attributes import Attribute
from models.privacy.randomness import RunKey
from models.prompt_templates import PromptTemplate
from models.prompts import PlainPrompts
from models.sampling.source import Request, SampledText, TextSource

if TYPE_CHECKING:
    import httpx2
    import openai

# The API takes no more; all of them are found again in the answer.
_MOST_STOP_TEXTS: Final = 4
# Servers keep seeds in 32 bits, and some take the largest for none at all.
_SEED_BITS: Final = 31
_VARIABLE = re.compile('[A-Za-z_][A-Za-z0-9_]*')
_LOGGERS = ('openai', 'httpx2', 'httpcore2')
# Headers that are sent. All others come of the client's environment, such as the name of an organization.
_SENT_HEADERS = frozenset(
    {
        'host',
        'accept',
        'connection',
        'user-agent',
        'content-type',
        'content-length',
        'x-stainless-raw-response',
    }
)
_NO_CONNECTION, _NO_ANSWER, _UNREADABLE = 'no connection', 'no answer in time', 'no completion'
# Asking again later may help.
_LATER: Final = frozenset({408, 409, 429})


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """All of it public, picklable.

    Attributes:
        url: Where the API begins, such as `http://localhost:8000/v1`; without user, password or query.
        model: The model's name at the endpoint.
        attributes: The attributes whose values every label combines; empty where a label is one value.
        schema: Text for `{schema}`.
        top_p: Nucleus: the share of probability that is sampled from.
        requests_at_once: Requests of one source that wait for an answer at the same time.
        timeout: Seconds for an answer to begin, and again for it to end.
        retries: How often a request is made again: after 429, 5xx, a timeout or a failed connection.
        token_variable: The environment variable that holds the token; None where none is asked for.
    """

    url: str
    model: str
    template: PromptTemplate
    label_words: tuple[tuple[str, str], ...] = ()
    label_name: str = 'Label'
    attributes: tuple[Attribute, ...] = ()
    text_name: str = 'Text'
    corpus_description: str = 'A collection of texts, one after another.'
    schema: str | None = None
    max_example_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    requests_at_once: int = 8
    timeout: float = 120.0
    retries: int = 5
    token_variable: str | None = None

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.token_variable is not None and not _VARIABLE.fullmatch(self.token_variable):
            # It may be the token itself.
            raise ValueError(
                'Expected the name of an environment variable that holds the token, got token_variable with '
                'other characters than letters, digits and underscores. Give its name, never the token.'
            )
        if not self.model:
            raise ValueError(
                "Expected the model's name at the endpoint, got model=''. Give it with --endpoint-model."
            )
        for name, value, holds, expected in (
            ('max_example_tokens', self.max_example_tokens, self.max_example_tokens >= 1, 'at least 1'),
            ('temperature', self.temperature, 0 < self.temperature < math.inf, 'above 0, and finite'),
            ('top_p', self.top_p, 0 < self.top_p <= 1, 'above 0 and at most 1'),
            ('requests_at_once', self.requests_at_once, self.requests_at_once >= 1, 'at least 1'),
            ('timeout', self.timeout, 0 < self.timeout < math.inf, 'above 0, and finite'),
            ('retries', self.retries, self.retries >= 0, 'at least 0'),
        ):
            if not holds:
                raise ValueError(f'Expected {name} {expected}, got {name}={value}. Correct it.')
        self.prompts()

    def prompts(self) -> PlainPrompts:
        """The prompts.

        Raises:
            ValueError: The template asks for a schema or attributes that are not there.
        """
        return PlainPrompts(
            template=self.template,
            label_words=dict(self.label_words),
            label_name=self.label_name,
            attributes=self.attributes,
            text_name=self.text_name,
            corpus_description=self.corpus_description,
            schema=self.schema,
        )


def _check_url(url: str) -> None:
    """Refuses a URL that holds, or may hold, a secret; no error shows any of it.

    Raises:
        ValueError: It has a user, a password, a query or a fragment, or is no URL of an API.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_url = parts.scheme in ('http', 'https') and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or re.search(r'[\s\0-\x1f\x7f]', url):
        raise ValueError(
            'Expected the URL where the API of an endpoint begins, got another text. Give one such as '
            'http://localhost:8000/v1 with --endpoint.'
        )
    if '@' in parts.netloc or '?' in url or '#' in url:
        raise ValueError(
            'Expected the URL of an endpoint without user, password, query and fragment, got a URL with one. '
            'Leave them out, and put a token into an environment variable.'
        )
    if parts.path.rstrip('/').endswith('/completions'):
        raise ValueError(
            f'Expected the URL where the API of an endpoint begins, got url={url!r}. End it before '
            '/completions, mostly with /v1.'
        )


@final
class EndpointSource(TextSource):
    """Asks an endpoint for each text. The run's own model is not loaded.

    An endpoint promises little: it is asked for the same seed whenever the same text is asked for, but may
    give another text then.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        """Makes a client; connects to nothing yet.

        Raises:
            ModuleNotFoundError: The package `openai` is not installed.
            ValueError: The environment does not hold the token.
        """
        self._settings = settings
        self._prompts = settings.prompts()
        self._client = _client(settings)

    def sample(self, requests: Sequence[Request], key: RunKey) -> list[SampledText | None]:
        """One text for each request, in their order; None where the endpoint gives no answer, or no text.

        The first requests, as many as may wait at once, are answered before there are others. So it soon
        shows where nobody answers.

        Raises:
            ConnectionError: All of the first requests, or all of them, fail, and may succeed later.
            TypeError: One is no `Request`.
            ValueError: All of the first requests, or all of them, are refused, or a prompt cannot be written.
        """
        if not all(type(request) is Request for request in requests):
            raise TypeError(
                'Expected requests, got another type. An endpoint is shown public and released texts alone.'
            )
        asked = [self._body(request, key) for request in requests]
        with concurrent.futures.ThreadPoolExecutor(self._settings.requests_at_once) as pool:
            answers: list[SampledText | str] = []
            for part in asked[: self._settings.requests_at_once], asked[self._settings.requests_at_once :]:
                answers += pool.map(self._answer, part)
                self._check(answers)
        return [None if isinstance(answer, str) else answer for answer in answers]

    def _body(self, request: Request, key: RunKey) -> dict[str, Any]:
        """The request's body: all of it public, or drawn from the key by the request's name."""
        hashed = int.from_bytes(key.hash('endpoint seed', request.name.encode(), size=8), 'little')
        body = {
            'model': self._settings.model,
            'prompt': self._prompts.prompt_text(request.label, request.examples),
            'max_tokens': self._settings.max_example_tokens,
            'temperature': self._settings.temperature,
            'top_p': self._settings.top_p,
            'seed': hashed % (1 << _SEED_BITS),
        }
        stop = self._prompts.plain_stop[:_MOST_STOP_TEXTS]
        return body | {'stop': list(stop)} if stop else body

    def _answer(self, body: dict[str, Any]) -> SampledText | str:
        """The text, or in words why there is none: an error of the client may hold anything."""
        import openai

        from models.sampling import answers

        try:
            answer = self._client.completions.with_raw_response.create(**body)
        except openai.APITimeoutError:
            return _NO_ANSWER
        except openai.APIConnectionError:
            return _NO_CONNECTION
        except openai.APIStatusError as error:
            return f'status {error.status_code}'
        except answers.AnswerTooLongError:
            return _UNREADABLE
        content = answer.http_response.content
        return answers.read_answer(content, self._prompts, self._settings.max_example_tokens) or _UNREADABLE

    def _check(self, answers: Sequence[SampledText | str]) -> None:
        """Refuses an endpoint that answers nothing.

        Raises:
            ConnectionError: Nothing of it may last.
            ValueError: Some of it will.
        """
        reasons = collections.Counter(answer for answer in answers if isinstance(answer, str))
        if not answers or reasons.total() < len(answers) or _UNREADABLE in reasons:
            return
        got = f'got failures={dict(reasons)} of requests={len(answers)} at url={self._settings.url!r}'
        statuses = {int(reason.split()[1]) for reason in reasons if reason.startswith('status ')}
        if any(status < 500 and status not in _LATER for status in statuses):
            token = self._settings.token_variable
            raise ValueError(
                f'Expected an endpoint that takes requests for model={self._settings.model!r}, {got}. '
                f'Correct --endpoint, --endpoint-model or the token{f" in {token}" if token else ""}; '
                'shorten the prompt where it does not fit.'
            )
        raise ConnectionError(
            f'Expected an endpoint that answers, {got}. See that it runs and is reached from where the run '
            'works, and start the run again: it goes on where it stopped.'
        )


def _client(settings: EndpointSettings) -> openai.OpenAI:
    """A client that sends what it is told to, nothing of its environment but the token, and logs nothing."""
    extras.need(extras.ENDPOINT, use='texts from an endpoint')
    import openai

    from models.sampling import answers

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    token = _token(settings.token_variable)

    def send(request: httpx2.Request) -> None:
        for name in set(request.headers) - _SENT_HEADERS:
            del request.headers[name]
        if token is not None:
            request.headers['authorization'] = f'Bearer {token}'

    def receive(response: httpx2.Response) -> None:
        # Nobody asked for compressed bytes: they could be the small beginning of endless ones.
        response.headers.pop('content-encoding', None)
        response.stream = answers.BoundedStream(
            response.stream,  # type: ignore[arg-type]
            answers.most_bytes(settings.max_example_tokens),
            time.monotonic() + settings.timeout,
        )

    return openai.OpenAI(
        base_url=settings.url,
        # With none it would take that of its environment, which is another endpoint's.
        api_key='none',
        max_retries=settings.retries,
        timeout=settings.timeout,
        http_client=openai.DefaultHttpxClient(
            # A request goes where the settings say, and nowhere else.
            follow_redirects=False,
            event_hooks={'request': [send], 'response': [receive]},
        ),
    )


def _token(variable: str | None) -> str | None:
    """The token.

    Raises:
        ValueError: There is none, or it cannot be sent; no error shows it.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, '').strip()
    if not re.fullmatch('[!-~]+', token):
        raise ValueError(
            f'Expected a token of visible ASCII characters in the environment variable {variable}, got '
            f'{"another text" if token else "none"}. Set it where the texts are sampled.'
        )
    return token
