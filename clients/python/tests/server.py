# SPDX-License-Identifier: Apache-2.0
"""A `reprise serve` process for the tests, files of identities, and a proxy whose connections can
be cut."""
import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from typing import List

TIMEOUT_S = 120  # generous: the server may run under a sanitizer


class Server:
    """Serves a fixture model on a unix socket and on a TCP port."""

    def __init__(self, program: str, model: str, *more: str) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="reprise-python-")
        self.path = self.directory.name
        self.socket = "unix:" + os.path.join(self.path, "s")
        command = [program, "serve", "--model", model, "--device", "host", "--listen", self.socket]
        command += ["--listen", "127.0.0.1:0", "--kv-cache", "4MiB", "--max-rows", "8"]
        command += ["--block-size", "5", *more]
        self.log = open(os.path.join(self.path, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        self.tcp = self._wait_for_port()

    def _wait_for_port(self) -> str:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.findall(r"serving on .*127\.0\.0\.1:(\d+)", self.output())
            if found:
                return "localhost:" + found[0]
            time.sleep(0.02)
        raise RuntimeError("reprise serve did not start:\n" + self.output())

    def output(self) -> str:
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.log.close()
            self.directory.cleanup()
        return self.process.returncode


def make_identities(folder: str, token: str) -> List[str]:
    """A certificate for localhost and a file of identities; the server's flags for them.

    This process is an administrator on the unix socket, where it sends no token.
    """
    key, certificate = os.path.join(folder, "server.key"), os.path.join(folder, "server.pem")
    old = os.umask(0o077)
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        digest = hashlib.sha256(token.encode()).hexdigest()
        identities = os.path.join(folder, "identities.json")
        with open(identities, "w", encoding="utf-8") as file:
            chat = {"name": "chat", "roles": ["step"], "token_sha256": [digest]}
            users = [os.getuid()]
            operator = {"name": "operator", "roles": ["administer"], "unix_users": users}
            json.dump({"identities": [chat, operator]}, file)
    finally:
        os.umask(old)
    return ["--identities", identities, "--tls-certificate", certificate, "--tls-key", key]


class Proxy:
    """Passes bytes to a server; `cut` breaks the connections that there are.

    delay_s: how long a new connection waits before its first bytes are passed.
    """

    def __init__(self, target: str, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._host, _, self._port = target.rpartition(":")
        self._writers: List[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return "127.0.0.1:%d" % self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def stop(self) -> None:
        self.cut()
        self._server.close()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await asyncio.sleep(self._delay_s)
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()
