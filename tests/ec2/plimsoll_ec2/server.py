"""Starts moto with the wrapper around it, on loopback."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

HOST = "127.0.0.1"


def serve(port: int, prices: list[Path], seed: int | None, answers: Path | None) -> None:
    """Serves until SIGTERM or SIGINT. One line of JSON on stdout contains the endpoint when the server is ready."""
    from plimsoll_ec2 import images

    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump([i.to_moto() for i in images.images()], file)
    os.environ["MOTO_AMIS_PATH"] = file.name
    try:
        # moto reads its images when its EC2 module is imported.
        from plimsoll_ec2 import patches
    finally:
        os.unlink(file.name)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    from plimsoll_ec2.gateway import Gateway
    from plimsoll_ec2.static_answers import StaticAnswers
    from plimsoll_ec2.world import WORLD

    class Quiet(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            """The gateway logs calls by action."""

    patches.install()
    for path in prices:
        WORLD.prices.load(path)
    WORLD.seeded.set(seed)
    application = Gateway(DomainDispatcherApplication(create_backend_app), StaticAnswers(answers))
    server = make_server(HOST, port, application, threaded=True, request_handler=Quiet)
    # A held call must not keep the process alive.
    server.daemon_threads = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    print(json.dumps({"endpoint": f"http://{HOST}:{server.server_port}"}), flush=True)
    server.serve_forever()
