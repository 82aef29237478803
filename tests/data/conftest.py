import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; a file NAME.cut is sent under NAME with too large a length, as a broken line would."""

    def do_GET(self):
        cut = Path(self.directory, f"{self.path.lstrip('/')}.cut")
        if not cut.exists():
            super().do_GET()
            return
        content = cut.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(2 * len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder and the address under which a server of this machine offers its files."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def folder(tmp_path):
    """An empty data folder."""
    path = tmp_path / "data"
    path.mkdir()
    return path
