"""A small proxy between the browser and the daemon, which serves some files of the page otherwise: with a bug in one of them, or as they lie in
the tree."""

import http.client
import http.server
import os
import ssl
import threading
from urllib.parse import urlsplit

KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8"}


class Handler(http.server.BaseHTTPRequestHandler):
    """Hands a request on, and its answer back; an answer without end as it comes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.hand_on(None)

    def do_POST(self):
        self.hand_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def hand_on(self, body):
        self.close_connection = True
        whole = {name: value for name, value in self.headers.items() if name.lower() not in ("if-none-match", "connection")}
        way = self.server.way()
        try:
            way.request(self.command, self.path, body, whole)
            answer = way.getresponse()
            changed = self.server.change(self.path, answer)
            status, kind = answer.status, None
            if changed is not None and status == 404:
                status, kind = 200, KINDS[os.path.splitext(self.path)[1]]
            self.send_response(status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "etag") and not (kind and name.lower() == "content-type"):
                    self.send_header(name, value)
            if kind:
                self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()
            if changed is not None:
                self.wfile.write(changed)
                return
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
        except SystemExit as error:
            # The story waits for a page that does not come, and does not know why.
            print(error, flush=True)
        except (OSError, http.client.HTTPException):
            # The daemon is away, or the browser: either sees a connection that ends.
            pass
        finally:
            way.close()


class Between:
    """The page of somebody else. `change(path, answer)` gives what is served instead, as bytes, or None; `certificate` (a file, and its key) is
    shown where the daemon's own page wants TLS."""

    def __init__(self, url, change, certificate=None):
        upstream = urlsplit(url)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.change = change
        if upstream.scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            trusting = ssl._create_unverified_context()  # the tests' certificates are signed by nobody
            self.server.way = lambda: http.client.HTTPSConnection(upstream.netloc, timeout=60, context=trusting)
        else:
            self.server.way = lambda: http.client.HTTPConnection(upstream.netloc, timeout=60)
        self.url = f"{upstream.scheme}://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def of_folder(folder):
    """What serves the page's files as they lie in a folder, whatever the program has in it."""
    def change(path, _):
        name = "index.html" if path == "/" else path.removeprefix("/page/") if path.startswith("/page/") else None
        file = os.path.join(folder, name) if name else None
        if not file or not os.path.isfile(file):
            return None
        with open(file, "rb") as opened:
            return opened.read()
    return change
