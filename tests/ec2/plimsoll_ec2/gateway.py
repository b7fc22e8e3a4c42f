"""The WSGI layer around moto: logs every AWS call, applies faults, and serves the control paths."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from plimsoll_ec2 import control, products, static_answers, visibility
from plimsoll_ec2.bootstrap import TEST_KEY
from plimsoll_ec2.faults import STATUS, CallFault
from plimsoll_ec2.seeded import Decision
from plimsoll_ec2.world import WORLD

Start = Callable[..., Any]
# Prefix of the actions of dry runs, in the log of calls and in faults.
DRY_RUN = "DryRun"


@dataclass
class Request:
    """Properties of an AWS call that this layer needs."""

    key: str
    service: str
    region: str
    action: str
    parameters: dict[str, Any]
    json_protocol: bool


class AnswerLost(ConnectionResetError):
    """Makes the server close the connection without a response, as if the client had disconnected."""


class Gateway:
    """Wraps a WSGI application."""

    def __init__(
        self,
        application: Callable[[dict[str, Any], Start], Iterable[bytes]],
        answers: static_answers.StaticAnswers,
    ) -> None:
        self._application = application
        self._answers = answers

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/_"):
            return control.serve(environ, start, _body(environ))
        body = _body(environ)
        environ["wsgi.input"] = io.BytesIO(body)
        request = _parse(environ, body)
        if request is None:
            return self._application(environ, start)
        call = WORLD.calls.arrived(request.service, request.action, request.region, request.parameters)
        fault = WORLD.faults.take(request.action)
        decision = None
        if request.key != TEST_KEY:
            decision = WORLD.seeded.decide(request.service, request.action, request.parameters)
        if decision:
            time.sleep(decision.seconds)
            fault = fault or _seeded_fault(request.action, decision)
        try:
            return self._meet(request, call, fault, decision, environ, start)
        finally:
            call["seconds"] = round(time.time() - call["time"], 6)
            error, given = call["error"] or "", " ".join(call["instances"])
            print(f"{call['seq']} {request.service}.{request.action} {call['state']} {call['status']} {call['seconds']}s {error}{given}", file=sys.stderr)

    def _meet(
        self,
        request: Request,
        call: dict[str, Any],
        fault: CallFault | None,
        decision: Decision | None,
        environ: dict[str, Any],
        start: Start,
    ) -> Iterable[bytes]:
        deed = fault.do if fault else None
        if fault and deed == "error":
            call.update(state="answered", status=fault.status, error=fault.code)
            return _error(request, fault, start)
        if deed == "lose-request":
            call["state"] = "lost-request"
            _hang_up(environ)
        if fault and deed == "hold-request":
            call["state"] = "held-request"
            if not WORLD.faults.hold(fault.seconds):
                call["state"] = "lost-request"
                _hang_up(environ)
        if decision:
            with visibility.calling(request.action, decision.number):
                status, headers, answer = self._execute(request, environ)
        else:
            status, headers, answer = self._execute(request, environ)
        call.update(state="executed", status=status, error=_error_code(status, answer))
        if deed == "lose-answer":
            call["state"] = "lost-answer"
            _hang_up(environ)
        if fault and deed == "hold-answer":
            call["state"] = "held-answer"
            WORLD.faults.hold(fault.seconds)
        call["state"] = "answered"
        start(f"{status} {'OK' if status < 400 else 'Error'}", headers)
        return [answer]

    def _execute(self, request: Request, environ: dict[str, Any]) -> static_answers.Answer:
        if request.service == "pricing" and request.action == "GetProducts":
            answer = json.dumps(products.get_products(request.parameters)).encode()
            return 200, [("Content-Type", "application/x-amz-json-1.1")], answer
        if request.service == "ec2" and request.action in products.LISTS:
            status, text = products.described(request.action, request.parameters)
            return status, [("Content-Type", "text/xml")], text.encode()
        if request.service == "ec2" and request.action in static_answers.ACTIONS:
            return self._answers.get(request.region, request.parameters, lambda: self._ask_moto(environ))
        return self._ask_moto(environ)

    def _ask_moto(self, environ: dict[str, Any]) -> static_answers.Answer:
        told: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
            told["status"], told["headers"] = int(status.split()[0]), headers
            return lambda _: None

        iterable = self._application(environ, start)
        try:
            answer = b"".join(iterable)
        finally:
            close = getattr(iterable, "close", None)
            if close:
                close()
        return told["status"], told["headers"], answer


def _body(environ: dict[str, Any]) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    return environ["wsgi.input"].read(length) if length else b""


def _parse(environ: dict[str, Any], body: bytes) -> Request | None:
    """None for requests that are not signed calls with an action: moto's own pages, instance metadata."""
    # AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, ...
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split(",")[0].split("/")
    if len(scope) != 5:
        return None
    key, _, region, service, _ = scope
    target = environ.get("HTTP_X_AMZ_TARGET")
    if target:
        try:
            parameters = json.loads(body or b"{}")
        except ValueError:
            parameters = {}
        return Request(key, service, region, target.rpartition(".")[2], parameters, json_protocol=True)
    parameters = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    action = parameters.get("Action")
    if action and parameters.get("DryRun") == "true":
        # An action of its own, so that faults and scenarios do not take it for a launch.
        action = DRY_RUN + action
    return Request(key, service, region, action, parameters, json_protocol=False) if action else None


def _seeded_fault(action: str, decision: Decision) -> CallFault | None:
    """The failure of a call that the seed chose."""
    if decision.error:
        return CallFault(action, "error", code=decision.error, message="The seed chose this error.", status=STATUS[decision.error])
    return CallFault(action, decision.lost) if decision.lost else None


def _error(request: Request, fault: CallFault, start: Start) -> Iterable[bytes]:
    if request.json_protocol:
        kind, text = "application/x-amz-json-1.0", json.dumps({"__type": fault.code, "message": fault.message})
    else:
        inner = f"<Code>{escape(fault.code)}</Code><Message>{escape(fault.message)}</Message>"
        if request.service == "ec2":
            text = f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>plimsoll-ec2</RequestID></Response>"
        else:
            text = f"<ErrorResponse><Error>{inner}</Error><RequestId>plimsoll-ec2</RequestId></ErrorResponse>"
        kind = "text/xml"
    start(f"{fault.status} Error", [("Content-Type", kind)])
    return [text.encode()]


def _error_code(status: int, answer: bytes) -> str | None:
    if status < 400:
        return None
    text = answer.decode("utf-8", "replace")
    for before, after in (("<Code>", "<"), ('"__type": "', '"'), ('"__type":"', '"')):
        found = text.partition(before)[2].partition(after)[0]
        if found:
            return found
    return "unknown"


def _hang_up(environ: dict[str, Any]) -> None:
    connection: socket.socket | None = environ.get("werkzeug.socket")
    if connection is not None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The client has disconnected already, which has the same effect.
    raise AnswerLost
