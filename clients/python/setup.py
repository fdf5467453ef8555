# SPDX-License-Identifier: Apache-2.0
"""Generates the messages of the wire contract; all else is in pyproject.toml.

They come from proto/ of this repository, by the protoc that is on the PATH or, where there is none,
by that of grpcio-tools.
"""
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"
FILE = "reprise/v1/step_service.proto"


def generate() -> None:
    if not (PROTO / FILE).exists():
        sys.exit(f"{PROTO / FILE}: not found; build from a checkout of the repository")
    protoc = shutil.which("protoc")
    program = [protoc] if protoc else [sys.executable, "-m", "grpc_tools.protoc"]
    out = HERE / "src"
    subprocess.run(
        [*program, f"-I{PROTO}", f"--python_out={out}", f"--pyi_out={out}", FILE], check=True
    )


generate()
setup()
