# SPDX-License-Identifier: Apache-2.0
"""How a client reaches a server: address, TLS and bearer token (docs/identity.md)."""
from __future__ import annotations

import dataclasses
import ipaddress
import pathlib
from typing import List, Optional, Tuple

import grpc

# A server allows a ping a second. Answers may be larger than gRPC's 4 MiB: docs/wire.md bounds them
# by limits.max_result_bytes. A lost connection is tried again soon, and each attempt has time:
# min_reconnect_backoff_ms is also how long one may take, TLS included, before the calls that wait
# for it fail with UNAVAILABLE.
_OPTIONS: List[Tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 20000),
    ("grpc.keepalive_timeout_ms", 20000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclasses.dataclass(frozen=True)
class Tls:
    """TLS to the server; each field is the PEM text of a file.

    ca: of the authority that issued the server's certificate; None: those of this system.
    certificate, key: what this client shows, both or neither.
    """

    ca: Optional[bytes] = None
    certificate: Optional[bytes] = None
    key: Optional[bytes] = None

    @staticmethod
    def from_files(
        ca: Optional[str] = None, certificate: Optional[str] = None, key: Optional[str] = None
    ) -> "Tls":
        """Reads the files. Errors: OSError."""

        def read(path: Optional[str]) -> Optional[bytes]:
            return None if path is None else pathlib.Path(path).read_bytes()

        return Tls(read(ca), read(certificate), read(key))


def read_token(path: str) -> str:
    """The bearer token in a file, without the newline at its end. Errors: OSError, ValueError."""
    token = pathlib.Path(path).read_text(encoding="ascii").rstrip("\r\n")
    if not token or any(not 0x21 <= ord(letter) <= 0x7E for letter in token):
        raise ValueError(f"{path}: token: allowed: one line of printable ASCII without spaces")
    return token


def is_local(address: str) -> bool:
    """Whether what is sent to the address stays on this host."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_channel(address: str, token: Optional[str], tls: Optional[Tls]) -> grpc.aio.Channel:
    """address: "unix:/path" or "host:port".

    Errors: ValueError for a token that would leave this host in plain text, and for a certificate
    without its key.
    """
    if tls is None:
        if token is not None and not is_local(address):
            raise ValueError(
                f"token: got one for {address} without TLS, "
                "allowed: with TLS, on a unix socket or on an address of this host"
            )
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    if (tls.certificate is None) != (tls.key is None):
        raise ValueError("tls: got a certificate without its key or a key without its certificate")
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
    return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
