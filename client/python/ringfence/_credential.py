"""What a client proves with who it is: a bearer token, and TLS."""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ringfence._grpc import grpc
from ringfence.errors import AccessDenied, ConnectError

log = logging.getLogger("ringfence")

# The longest token, in bytes: it has to fit the headers that a server takes.
TOKEN_BYTES_MAX = 8 * 1024
# Seconds: how often the file is looked at that a token came from, …
LOOK = 5.0
# … how soon because the token was refused, …
LOOK_MIN = 1.0
# … and the longest time for which a token is taken to be valid without a look at its file.
LOOK_MAX = 24 * 60 * 60.0
# The largest file of a certificate or key, in bytes.
PEM_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True)
class TLS:
    """TLS of a client: whom it trusts, and what it shows. Each value is the path of a PEM file, or
    PEM as bytes. Files are read again for each connection.

    Nothing is trusted but the authorities in `ca`; the machine's own list is not asked.
    """

    # The authorities that may have signed the servers' certificates.
    ca: str | os.PathLike[str] | bytes
    # The certificate to show to servers that ask for one; those that signed it follow in it.
    certificate: str | os.PathLike[str] | bytes | None = None
    # The key of `certificate`.
    key: str | os.PathLike[str] | bytes | None = field(default=None, repr=False)
    # The name that the servers' certificates must have, instead of the host of each endpoint.
    server_name: str | None = None

    def credentials(self) -> Any:
        """What a connection is opened with; raises ConnectError if a file cannot be used."""
        if (self.certificate is None) != (self.key is None):
            raise ConnectError("TLS: a certificate and its key are given together, or neither")
        key = None if self.key is None else _pem(self.key)
        certificate = None if self.certificate is None else _pem(self.certificate)
        return grpc.ssl_channel_credentials(_pem(self.ca), key, certificate)


def _pem(source: str | os.PathLike[str] | bytes) -> bytes:
    if isinstance(source, bytes):
        text = source
    else:
        try:
            text = _read(source, PEM_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise ConnectError(f"TLS: {os.fspath(source)}: {error}") from None
    if b"-----BEGIN" not in text:
        raise ConnectError("TLS: what was given is not PEM; expected text with -----BEGIN")
    return text


def _read(path: str | os.PathLike[str], limit: int) -> bytes:
    """A file of at most so many bytes. A pipe or a device would hold the caller up."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no file")
    with open(path, "rb") as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise ValueError(f"it is longer than {limit} bytes")
    return text


class Credential:
    """The bearer token, and when its file is read again. It is in no repr and no message."""

    def __init__(self, token: str | None, file: str | os.PathLike[str] | None) -> None:
        if token is not None and file is not None:
            raise ConnectError("a token and a token file were given; expected one of them")
        self._file = file
        self._look = threading.Event()
        self._stop = threading.Event()
        try:
            self._token = self._take() if file is not None else _checked(token)
        except (OSError, ValueError) as error:
            raise ConnectError(f"token: {error}") from None
        # Why the last stream was not opened, if it was for who this client is.
        self.refusal: AccessDenied | None = None

    def metadata(self) -> list[tuple[str, str]]:
        """What each call carries."""
        return [] if self._token is None else [("authorization", f"Bearer {self._token}")]

    def refused(self) -> None:
        """The token was refused: perhaps there is a newer one."""
        self._look.set()

    def follow(self, replaced: Callable[[], None]) -> threading.Thread | None:
        """Reads the file again when it is time to, on a thread of its own: a slow disk must hold up
        no keep-alive. Calls `replaced` when there is another token."""
        if self._file is None:
            return None
        thread = threading.Thread(target=self._run, args=(replaced,), name="ringfence-token", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._look.set()

    def _run(self, replaced: Callable[[], None]) -> None:
        pause, trouble = _pause_after(self._token), ""
        while True:
            refused = self._look.wait(pause)
            if self._stop.wait(LOOK_MIN if refused else 0):
                return
            self._look.clear()
            pause = LOOK
            try:
                token = self._take()
            except (OSError, ValueError) as error:
                if str(error) != trouble:
                    log.warning("the token that was read before is shown further on: %s", error)
                trouble = str(error)
                continue
            trouble = ""
            if token != self._token:
                self._token = token
                pause = _pause_after(token)
                replaced()

    def _take(self) -> str | None:
        assert self._file is not None
        try:
            return _checked(_read(self._file, TOKEN_BYTES_MAX).decode("utf-8", "replace"))
        except ValueError as error:
            raise ValueError(f"{os.fspath(self._file)}: {error}") from None


def _checked(text: str | None) -> str | None:
    if text is None:
        return None
    token = text.strip()
    if not token:
        raise ValueError("the token is empty")
    if len(token) > TOKEN_BYTES_MAX:
        raise ValueError("the token is longer than 8 KiB")
    if not all("!" <= letter <= "~" for letter in token):
        raise ValueError(
            "the token has a space, or a character that no token has; expected the token alone"
        )
    return token


def _pause_after(token: str | None) -> float:
    """Seconds for which a token is shown until its file is looked at: two thirds of its lifetime, if
    it is a JSON Web Token that says that. Whether it is valid, the cluster decides."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return LOOK
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        left = float(claims["exp"]) - time.time()
    except (ValueError, KeyError, TypeError):
        return LOOK
    return min(max(left / 3 * 2, LOOK), LOOK_MAX)
