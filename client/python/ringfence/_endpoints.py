"""Where members are reached, and which to talk to: pure choice, no I/O.

Any member answers every request, so one that works is enough; the leader is preferred, since it
answers without a detour. Members name the leader in their greeting and in refusals. For a while
after a leader has died they go on naming it: a hint at an address that has just failed means wait,
not go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ringfence._clock import NS_PER_S
from ringfence.errors import ConnectError

# The most endpoints a client takes.
ENDPOINTS_MAX = 64
# How long an address that failed is not gone to on a hint, and stands last among the candidates.
REST = 2 * NS_PER_S
# The most addresses remembered beside those that the user gave.
LEARNED_MAX = 16

LOCAL = "unix:"
ENCRYPTED = "https://"
PLAIN = "http://"

_HOST = re.compile(r"[!-~]+\Z")


def parse(text: str) -> str:
    """`HOST:PORT`, or `unix:/PATH`; raises ValueError with what is wrong with the text."""
    text = text.strip()
    if text.startswith(LOCAL):
        path = text[len(LOCAL) :]
        path = path[2:] if path.startswith("//") else path
        if not path or any(ord(letter) < 32 for letter in path):
            raise ValueError("the path of the socket is missing, as unix:/var/lib/ringfence/admin.sock")
        return LOCAL + path
    for scheme in (ENCRYPTED, PLAIN):
        if text.startswith(scheme):
            text = text[len(scheme) :]
            break
    text = text[:-1] if text.endswith("/") else text
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError("the port is missing")
    if not host:
        raise ValueError("the host is missing")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("an IPv6 address stands in brackets")
    if not _HOST.match(host) or any(letter in "/?#@" for letter in host):
        raise ValueError("the host has a character that no host has")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise ValueError("the port is no number from 1 to 65535")
    return text


def parse_all(offered: Iterable[str]) -> list[str]:
    """Parses what a user wrote, dropping repeats."""
    endpoints: list[str] = []
    for text in offered:
        try:
            endpoint = parse(text)
        except ValueError as fault:
            raise ConnectError(
                f"endpoint {text!r}: {fault}; expected HOST:PORT or unix:/PATH"
            ) from None
        if endpoint not in endpoints:
            endpoints.append(endpoint)
    if not endpoints:
        raise ConnectError("no endpoint was given; expected at least one, as 127.0.0.1:7420")
    if len(endpoints) > ENDPOINTS_MAX:
        raise ConnectError(f"{len(endpoints)} endpoints were given; at most {ENDPOINTS_MAX} are allowed")
    return endpoints


class Endpoints:
    """What is known of the members' addresses. The caller sees to it that one thread at a time asks."""

    def __init__(self, given: list[str], turn: int) -> None:
        self._given = given
        self._learned: list[str] = []
        self._leader: str | None = None
        self._failed: dict[str, int] = {}
        # Where the round of candidates begins: clients that start together begin with different ones.
        self._turn = turn % len(given)

    def candidates(self, now: int) -> list[str]:
        """The addresses to try, best first."""
        turned = self._given[self._turn :] + self._given[: self._turn]
        first = [self._leader] if self._leader else []
        candidates = list(dict.fromkeys(first + turned + self._learned))
        candidates.sort(key=lambda endpoint: self._rests(endpoint, now))
        return candidates

    def hint(self, named: str, current: str | None, now: int) -> str | None:
        """A member names the leader's address; returned if it is worth going there from `current`."""
        # By a node's own socket the client is `local`, by a port it is not: that node forwards.
        if any(endpoint.startswith(LOCAL) for endpoint in self._given):
            return None
        try:
            leader = parse(named)
        except ValueError:
            return None
        self._learn(leader)
        self._leader = leader
        return leader if leader != current and not self._rests(leader, now) else None

    def failed(self, endpoint: str, now: int) -> None:
        """The address did not answer, or its connection broke."""
        self._failed[endpoint] = now
        if self._leader == endpoint:
            self._leader = None
        if self._given[self._turn] == endpoint:
            self._turn = (self._turn + 1) % len(self._given)

    def greeted(self, endpoint: str) -> None:
        """The address answered: it is a candidate again, and the next round starts with it."""
        self._failed.pop(endpoint, None)
        if endpoint in self._given:
            self._turn = self._given.index(endpoint)

    def _rests(self, endpoint: str, now: int) -> bool:
        at = self._failed.get(endpoint)
        return at is not None and now < at + REST

    def _learn(self, leader: str) -> None:
        if leader in self._given or leader in self._learned:
            return
        if len(self._learned) == LEARNED_MAX:
            self._failed.pop(self._learned.pop(0), None)
        self._learned.append(leader)
