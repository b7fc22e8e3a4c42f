"""Client tokens: one token means one execution, however often and concurrently it is sent."""

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
    """Stores the response of each token, and the parameters of its call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def once(self, key: Hashable, parameters: Any, execute: Callable[[], Any]) -> Any:
        """Behaves like EC2: the first call executes, an identical call returns the same response, and a call with other
        parameters is rejected. Concurrent calls wait for the first. A call that fails leaves the token unused."""
        while True:
            with self._lock:
                entry = self._entries.setdefault(key, _Entry(parameters))
            # Compared before waiting too: EC2 knows the parameters of the first call immediately.
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
                        continue  # The first call failed and released the token.
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
        """Expires every token."""
        with self._lock:
            self._entries.clear()
