"""A front of kube-apiserver that reports another Kubernetes version, as during an upgrade of a control plane.

    python front.py --server https://127.0.0.1:6443 --pki DIR --version-file FILE

It passes every request on unchanged, except GET /version, which it answers with the version in the file. DIR has the
certificates that `controlplane start` writes. The first line on stdout is its address in JSON. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import threading
from pathlib import Path

HEAD_MAX = 1 << 20
CHUNK = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--version-file", type=Path, required=True)
    args = parser.parse_args()
    host, _, port = args.server.removeprefix("https://").partition(":")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(args.pki / "apiserver.crt", args.pki / "apiserver.key")
    trusted = ssl.create_default_context(cafile=str(args.pki / "ca.crt"))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(json.dumps({"server": f"https://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        connection, _ = listener.accept()
        target = (host, int(port))
        threading.Thread(target=_serve, args=(connection, served, trusted, target, args.version_file), daemon=True).start()


def _serve(plain: socket.socket, served: ssl.SSLContext, trusted: ssl.SSLContext, target: tuple[str, int], file: Path) -> None:
    """One request of one connection; a broken connection ends it."""
    try:
        with served.wrap_socket(plain, server_side=True) as client:
            head, rest = _head(client)
            if head.startswith(b"GET /version "):
                client.sendall(_version(file.read_text().strip()))
                return
            with trusted.wrap_socket(socket.create_connection(target), server_hostname=target[0]) as server:
                server.sendall(_closing(head) + rest)
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                _copy(server, client)
    except (OSError, ValueError):
        pass


def _head(client: ssl.SSLSocket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(CHUNK)
        if not more or len(data) > HEAD_MAX:
            raise ValueError("no request")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _closing(head: bytes) -> bytes:
    """The request with `Connection: close`: the server ends the connection after its response."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n"


def _version(version: str) -> bytes:
    major, _, minor = version.partition(".")
    body = json.dumps({"major": major, "minor": minor, "gitVersion": f"v{version}.0", "gitCommit": "", "gitTreeState": "clean",
                       "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go", "compiler": "gc", "platform": "linux/amd64"})
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def _copy(source: ssl.SSLSocket, sink: ssl.SSLSocket) -> None:
    try:
        while data := source.recv(CHUNK):
            sink.sendall(data)
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    main()
