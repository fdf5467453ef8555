#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel, checks what is in it, installs it, and runs the package's own tests.

usage: wheel_test.py --source REPOSITORY --build BUILD
"""

import argparse
import base64
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile


def make(source: pathlib.Path, build: pathlib.Path, out: pathlib.Path, expected: int = 0):
    words = [source / "tools/package_wheel.py", "--build", build, "--out", out]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stdout + done.stderr
    return pathlib.Path(done.stdout.strip()) if expected == 0 else done.stderr


def check_record(archive: zipfile.ZipFile) -> None:
    """As pip reads it: each file with its hash and size."""
    names = archive.namelist()
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    listed = {}
    for line in archive.read(record).decode().splitlines():
        name, digest, size = line.split(",")
        listed[name] = (digest, size)
    assert sorted(listed) == sorted(names), set(listed) ^ set(names)
    for name in names:
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        expected = ("", "") if name == record else (f"sha256={digest}", str(len(data)))
        assert listed[name] == expected, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if importlib.util.find_spec("numpy") is None:
        print(f"SKIPPED: {sys.executable} has no numpy (python3-numpy)")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        wheel = make(arguments.source, arguments.build, scratch / "first")
        again = make(arguments.source, arguments.build, scratch / "second")
        assert wheel.read_bytes() == again.read_bytes(), "the same files made another wheel"
        said = make(arguments.source, scratch, scratch / "third", expected=1)
        assert "which has no libreprise.so.0" in said, said
        site = scratch / "site"
        with zipfile.ZipFile(wheel) as archive:
            check_record(archive)
            archive.extractall(site)  # what an installer does with a wheel of this kind
        done = subprocess.run(
            [sys.executable, arguments.source / "bindings/python/tests/embedded_test.py",
             "--source", arguments.source],
            env={**os.environ, "PYTHONPATH": str(site)}, timeout=200, check=False,
        )  # fmt: skip
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
