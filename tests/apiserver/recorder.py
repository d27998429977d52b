"""A server that only listens: it keeps the bodies that the real kubectl sends and answers with what they decode to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dragoman.apiserver import protobuf
from dragoman.errors import Invalid

KUBECTL = Path(sys.executable).with_name("kubectl")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(
            404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path.partition("?")[0], self.headers.get("Content-Type", ""), body))  # type: ignore[attr-defined]
        try:
            self._answer(201, protobuf.decode(body))
        except Invalid as wrong:
            self._answer(
                400, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(wrong), "code": 400}
            )

    def _answer(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


class Recorder:
    """kubectl against the listening server."""

    def __init__(self, server: ThreadingHTTPServer, home: Path) -> None:
        self.server = server
        self.env = {**os.environ, "HOME": str(home), "KUBECONFIG": str(home / "none")}

    def run(self, *words: str, ok: bool = True) -> str:
        """Run kubectl, which must succeed if `ok`; its standard output."""
        command = [str(KUBECTL), "--server", f"http://127.0.0.1:{self.server.server_address[1]}", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        assert not ok or done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def sent(self, *words: str, ok: bool = True) -> tuple[str, str, bytes]:
        """Path, content type and body of the one POST that a command makes."""
        del self.server.seen[:]  # type: ignore[attr-defined]
        self.run(*words, ok=ok)
        (only,) = self.server.seen  # type: ignore[attr-defined]
        return only


@contextmanager
def recording(home: Path) -> Iterator[Recorder]:
    """A listening server, as long as the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.seen = []  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="listening server")
    thread.start()
    try:
        yield Recorder(server, home)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
