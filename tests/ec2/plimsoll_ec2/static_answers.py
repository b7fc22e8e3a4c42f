"""Answers that are the same for every server: moto computes one for seconds, and each replica of the actuator asks."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = tuple[int, list[tuple[str, str]], bytes]

# What EC2 offers in a region. Prices, capacity and instances are not among them, because tests change these.
ACTIONS = frozenset({"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"})


class StaticAnswers:
    """Computes an answer once, for this server and for all that have the same folder.

    The folder must be new for each run: nothing tells whether an answer is from another version of moto.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, Answer] = {}
        # Held while an answer is computed, because replicas that start together ask for the same.
        self._lock = threading.Lock()

    def get(self, region: str, parameters: dict[str, Any], compute: Callable[[], Answer]) -> Answer:
        """The known answer for these parameters of a region, or the one that `compute` returns."""
        text = json.dumps([region, parameters], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            answer = self._known.get(key) or self._read(key)
            if answer is None:
                answer = compute()
                # A token of the next page is known only to the server that gave it.
                if answer[0] != 200 or b"<nextToken>" in answer[2]:
                    return answer
                self._write(key, answer)
            self._known[key] = answer
            return answer

    def _read(self, key: str) -> Answer | None:
        if self._folder is None:
            return None
        try:
            head, _, body = (self._folder / key).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        status, headers = json.loads(head)
        return status, [(name, value) for name, value in headers], body

    def _write(self, key: str, answer: Answer) -> None:
        if self._folder is None:
            return
        status, headers, body = answer
        self._folder.mkdir(parents=True, exist_ok=True)
        # Another server may write the same file: a reader sees one of the two as a whole.
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps([status, headers]).encode() + b"\n" + body)
        os.replace(name, self._folder / key)
