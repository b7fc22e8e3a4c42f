"""Client tokens: one token is one execution, however often and however concurrently it is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from moto.ec2.exceptions import EC2ClientError


class _Entry:
    def __init__(self, parameters: Any) -> None:
        self.lock = threading.Lock()
        self.parameters = parameters
        self.done = False
        self.answer: Any = None


class Tokens:
    """Remembers the answer of each token, and the parameters that it came with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def once(self, key: Hashable, parameters: Any, execute: Callable[[], Any]) -> Any:
        """Answers as EC2 does: the first call executes, an identical one repeats its answer, one with other
        parameters is refused. Concurrent calls wait for the first. A call that fails leaves the token unused."""
        while True:
            with self._lock:
                entry = self._entries.setdefault(key, _Entry(parameters))
            # Compared before waiting too: EC2 knows the parameters from the first byte of the first call.
            if entry.parameters != parameters:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "The client token was used before with other parameters.",
                )
            with entry.lock:
                if entry.done:
                    return entry.answer
                with self._lock:
                    if self._entries.get(key) is not entry:
                        continue  # The call that we waited for failed and gave the token back.
                try:
                    entry.answer = execute()
                except BaseException:
                    with self._lock:
                        if self._entries.get(key) is entry:
                            del self._entries[key]
                    raise
                entry.done = True
                return entry.answer

    def forget(self) -> None:
        """As if every token had expired."""
        with self._lock:
            self._entries.clear()
