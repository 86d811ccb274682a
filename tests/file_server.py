"""A small HTTP server that can lack ranges, cut connections, and answer with errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Files:
    """What the server has and how it behaves.

    Attributes:
        contents: path -> bytes.
        ranges: whether it sends a part of a file when it is asked for one.
        cuts: after so many bytes of the body the connection ends, one entry a request; then never.
        states: path -> the HTTP states it answers with, one a request; then 200.
        lengths: whether it says how long a file is.
        asked: the ``Range`` of each request, None without one.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    states: dict[str, list[int]] = field(default_factory=dict)
    lengths: bool = True
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(files: Files) -> Iterator[Files]:
    """Serve files at ``files.url`` for a while."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            files.asked.append(self.headers.get("Range"))
            states = files.states.get(self.path, [])
            if states or self.path not in files.contents:
                self.send_error(states.pop(0) if states else 404)
                return
            self._send(files.contents[self.path])

        def _send(self, content: bytes) -> None:
            asked = self.headers.get("Range") if files.ranges else None
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            if asked and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if asked else 200)
            if asked:
                span = f"bytes {start}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", span)
            if files.lengths:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            body = content[start:]
            self.wfile.write(body[: files.cuts.pop(0)] if files.cuts else body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    files.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
