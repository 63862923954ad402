"""What Flink's REST interface on this machine answers."""

import http.client
import json
from typing import Any

_ENDED = frozenset({'FINISHED', 'CANCELED', 'FAILED'})


def ask(port: int, path: str, method: str = 'GET') -> Any:
    """The answer to one request, from JSON.

    Raises:
        OSError: Nothing answers.
        RuntimeError: The answer is an error.
    """
    connection = http.client.HTTPConnection('localhost', port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status >= 400:
        raise RuntimeError(
            f'Expected an answer of Flink, got status={response.status} for path={path!r}. See its logs.'
        )
    return json.loads(body)


def running_jobs(port: int) -> list[str]:
    """Ids of the jobs that have not ended."""
    return [job['id'] for job in ask(port, '/jobs')['jobs'] if job['status'] not in _ENDED]
