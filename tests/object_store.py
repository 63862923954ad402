"""An object store with Google Cloud Storage's JSON API on this machine, as far as Beam's client uses it.

Generations and preconditions are those of the real store: what a resumption relies on.
Everything is in memory.
"""

import contextlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from email import message_from_bytes

import pytest
from apache_beam.internal.gcp import auth


class _Server(http.server.ThreadingHTTPServer):
    """Holds the objects: name, bucket first, to (generation, content)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.objects: dict[str, tuple[int, bytes]] = {}
        self.lock = threading.Lock()
        self.generation = 1


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _parts(self) -> tuple[str, str, dict[str, str]]:
        """Bucket, object and query of a request."""
        url = urllib.parse.urlsplit(self.path)
        match = re.fullmatch(r'(?:/upload|/download)?/storage/v1/b/([^/]+)(?:/o(?:/(.*))?)?', url.path)
        assert match, url.path
        return match[1], urllib.parse.unquote(match[2] or ''), dict(urllib.parse.parse_qsl(url.query))

    def _resource(self, place: str) -> dict[str, str]:
        bucket, _, name = place.partition('/')
        generation, content = self.server.objects[place]
        return {
            'kind': 'storage#object', 'bucket': bucket, 'name': name, 'size': str(len(content)),
            'generation': str(generation), 'updated': '2026-01-01T00:00:00.000Z', 'crc32c': 'AAAAAA==',
        }  # fmt: skip

    def _answer(
        self, code: int, body: object = None, content: bytes | None = None, kind: str = 'application/json'
    ) -> None:
        data = json.dumps(body or {}).encode() if content is None else content
        self.send_response(code)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _put(self, place: str, content: bytes, query: dict[str, str]) -> None:
        with self.server.lock:
            current = self.server.objects.get(place, (0, b''))[0]
            if int(query.get('ifGenerationMatch', current)) != current:
                return self._answer(412, {'error': {'code': 412, 'message': 'conditionNotMet'}})
            self.server.generation += 1
            self.server.objects[place] = self.server.generation, content
            return self._answer(200, self._resource(place))

    def _batch(self, body: bytes) -> None:
        """Deletions, several in one request."""
        answers = b''
        for number, place in enumerate(re.findall(rb'DELETE \S*/b/([^/\s]+)/o/([^?\s]+)', body)):
            gone = self.server.objects.pop(
                '/'.join(urllib.parse.unquote(part.decode()) for part in place), None
            )
            answers += (
                b'--part\r\nContent-Type: application/http\r\nContent-ID: <response-%d>\r\n\r\n'
                b'HTTP/1.1 %d Answer\r\nContent-Length: 0\r\n\r\n\r\n' % (number, 204 if gone else 404)
            )
        self._answer(200, content=answers + b'--part--', kind='multipart/mixed; boundary=part')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if self.path.startswith('/batch/'):
            return self._batch(body)
        bucket, _, query = self._parts()
        head = f'Content-Type: {self.headers["Content-Type"]}\n\n'.encode()
        metadata, content = message_from_bytes(head + body).get_payload()
        place = f'{bucket}/{json.loads(metadata.get_payload())["name"]}'
        return self._put(place, content.get_payload(decode=True), query)

    def do_GET(self) -> None:
        bucket, name, query = self._parts()
        if not name:
            prefix = f'{bucket}/{query.get("prefix", "")}'
            found = [
                self._resource(place) for place in sorted(self.server.objects) if place.startswith(prefix)
            ]
            return self._answer(200, {'kind': 'storage#objects', 'items': found})
        if f'{bucket}/{name}' not in self.server.objects:
            return self._answer(404, {'error': {'code': 404, 'message': 'not found'}})
        if query.get('alt') != 'media':
            return self._answer(200, self._resource(f'{bucket}/{name}'))
        content = self.server.objects[f'{bucket}/{name}'][1]
        wanted = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range') or 'bytes=0-')
        assert wanted
        first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if first >= len(content):
            return self._answer(416)
        self.send_response(206)
        self.send_header('Content-Range', f'bytes {first}-{last}/{len(content)}')
        self.send_header('Content-Length', str(last + 1 - first))
        self.end_headers()
        self.wfile.write(content[first : last + 1])
        return None

    def do_DELETE(self) -> None:
        bucket, name, _ = self._parts()
        gone = self.server.objects.pop(f'{bucket}/{name}', None)
        self._answer(204 if gone else 404)


@contextlib.contextmanager
def object_store() -> Iterator[dict[str, tuple[int, bytes]]]:
    """Serves gs:// in this process and its children; gives the objects, bucket first, with generations."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('STORAGE_EMULATOR_HOST', f'http://127.0.0.1:{server.server_port}')
        # Beam would look for credentials for half a minute, and then do as this says: go without.
        patch.setattr(auth._Credentials, '_credentials_init', True)
        patch.setattr(auth._Credentials, '_credentials', None)
        try:
            yield server.objects
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
