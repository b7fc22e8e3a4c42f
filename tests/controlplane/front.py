"""A front of kube-apiserver that reports another Kubernetes version, as during an upgrade of a control plane.

    python front.py --server https://127.0.0.1:6443 --pki DIR --version-file FILE

It passes every request on unchanged, except GET /version, which it answers with the version in the file. DIR has the
certificates that `controlplane start` writes. The first line on stdout is its address in JSON. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
from pathlib import Path

HEAD_MAX = 1 << 20
CHUNK = 1 << 16


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--version-file", type=Path, required=True)
    args = parser.parse_args()
    host, _, port = args.server.removeprefix("https://").partition(":")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(args.pki / "apiserver.crt", args.pki / "apiserver.key")
    trusted = ssl.create_default_context(cafile=str(args.pki / "ca.crt"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A broken connection ends its request.
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _serve(reader, writer, trusted, (host, int(port)), args.version_file)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=served, limit=HEAD_MAX, backlog=128)
    print(json.dumps({"server": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"}), flush=True)
    await server.serve_forever()


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trusted: ssl.SSLContext, target: tuple[str, int], file: Path
) -> None:
    """One request of one connection. One thread does all work: two threads must not use one TLS connection at a time."""
    head = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n")
    if head.startswith(b"GET /version "):
        writer.write(_version(file.read_text().strip()))
        await writer.drain()
        return
    answers, requests = await asyncio.open_connection(*target, ssl=trusted, server_hostname=target[0])
    requests.write(_closing(head))
    copies = [asyncio.create_task(_copy(reader, requests)), asyncio.create_task(_copy(answers, writer))]
    # The client ends the connection only after the response, or because it gives up.
    _, others = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    requests.close()


def _closing(head: bytes) -> bytes:
    """The request with `Connection: close`: the server ends the connection after its response."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n"


def _version(version: str) -> bytes:
    major, _, minor = version.partition(".")
    body = json.dumps({"major": major, "minor": minor, "gitVersion": f"v{version}.0", "gitCommit": "", "gitTreeState": "clean",
                       "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go", "compiler": "gc", "platform": "linux/amd64"})
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()


if __name__ == "__main__":
    asyncio.run(main())
