"""Client tokens: one token means one execution, however often and concurrently it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from moto.ec2.exceptions import EC2ClientError


# What a repeated token is answered: the first response, an error, or as if it had never been sent.
ANSWERS = ("same", "mismatch", "in-progress", "expired")
# A first call takes at most this long, so that it cannot block a run.
SECONDS_MAX = 60.0


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
        self._answer = ANSWERS[0]
        self._seconds = 0.0

    def set(self, body: Any) -> None:
        """`{"repeated": ANSWER, "seconds": S}`: the answer to repeated tokens from now on, and how long the first call of
        a token takes."""
        if not isinstance(body, dict) or set(body) - {"repeated", "seconds"}:
            raise ValueError("repeated and seconds are all that can be said")
        answer, seconds = body.get("repeated", ANSWERS[0]), body.get("seconds", 0)
        if answer not in ANSWERS:
            raise ValueError(f"repeated: one of {', '.join(ANSWERS)} is needed, not {answer!r}")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= SECONDS_MAX:
            raise ValueError(f"seconds: a number from 0 to {SECONDS_MAX:g} is needed, not {seconds!r}")
        with self._lock:
            self._answer, self._seconds = answer, float(seconds)

    def _repeated(self, key: Hashable, entry: _Entry) -> None:
        """Raises the configured error for a call whose token was sent before."""
        with self._lock:
            answer = self._answer
            if answer == "expired" and self._entries.get(key) is entry:
                del self._entries[key]
        if answer == "mismatch":
            raise EC2ClientError("IdempotentParameterMismatch", "The client token was used before with other parameters.")
        if answer == "in-progress" and not entry.done:
            # EC2 documents no code for this case, so this one is unknown to every client.
            raise EC2ClientError("IdempotentRequestInProgress", "A request with this client token is still running.")

    def once(self, key: Hashable, parameters: Any, execute: Callable[[], Any], launches: bool = True) -> Any:
        """Behaves like EC2: the first call executes, an identical call returns the same response, and a call with other
        parameters is rejected. Concurrent calls wait for the first. A call that fails leaves the token unused.
        Calls that launch something behave as `set` says."""
        while True:
            with self._lock:
                seconds, mine = self._seconds, _Entry(parameters)
                entry = self._entries.setdefault(key, mine)
            # Compared before waiting too: EC2 knows the parameters of the first call immediately.
            if entry.parameters != parameters:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "The client token was used before with other parameters.",
                )
            if launches and entry is not mine:
                self._repeated(key, entry)
            with entry.lock:
                if entry.done and self._entries.get(key) is entry:
                    return entry.answer
                with self._lock:
                    if self._entries.get(key) is not entry:
                        continue  # The first call failed and released the token, or the token has expired.
                if launches:
                    time.sleep(seconds)
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
        """Expires every token, and answers repeated tokens as EC2 does."""
        with self._lock:
            self._entries.clear()
            self._answer, self._seconds = ANSWERS[0], 0.0
