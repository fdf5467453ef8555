#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the Python package in bindings/python and of a build's libreprise.so.

It builds nothing and needs no network, only readelf and strip (Debian: binutils). Abseil's
libraries go into the wheel too, so that a machine needs those of the compiler alone. The same files
make the same wheel. Prints the path of the wheel.
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "reprise_embedded"
LIBRARY = "libreprise.so.0"
BUNDLED = re.compile(r"libabsl_.*")
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|atomic)|ld-linux-.*)\.so\..*")


class Failure(Exception):
    pass


def output_of(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{words[0]}: {done.stderr.strip()}")
    return done.stdout


def needed_by(library: pathlib.Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", library))


def libraries(build: pathlib.Path) -> dict[str, pathlib.Path]:
    """By the name under which each is loaded: ours, and those that it takes along."""
    ours = build / LIBRARY
    if not ours.exists():
        raise Failure(f"--build: got {build}, which has no {LIBRARY} (build the target reprise_c)")
    folders = {}
    for name, path in re.findall(r"(\S+) => (/\S+)", output_of("ldd", ours)):
        folders[name] = pathlib.Path(path)
    found = {LIBRARY: ours}
    pending = [ours]
    while pending:
        for name in needed_by(pending.pop()):
            if name in found or SYSTEM.fullmatch(name):
                continue
            if not BUNDLED.fullmatch(name) or name not in folders:
                raise Failure(f"{LIBRARY} needs {name}, which is neither a system's nor Abseil's")
            found[name] = folders[name]
            pending.append(folders[name])
    return found


def version() -> str:
    text = (ROOT / "bindings/python/src" / PACKAGE / "_library.py").read_text()
    return re.search(r'^VERSION = "(.*)"$', text, re.MULTILINE).group(1)


def metadata(number: str) -> str:
    return f"""Metadata-Version: 2.1
Name: reprise-embedded
Version: {number}
Summary: Reprise, a graph-replay runtime for LLM decode serving, inside a Python program
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{(ROOT / "bindings/python/README.md").read_text()}"""


def wheel_files(build: pathlib.Path, scratch: pathlib.Path, tag: str) -> dict[str, bytes]:
    number = version()
    files = {}
    for file in sorted((ROOT / "bindings/python/src" / PACKAGE).iterdir()):
        if file.suffix in (".py", ".typed"):
            files[f"{PACKAGE}/{file.name}"] = file.read_bytes()
    for name, path in sorted(libraries(build).items()):
        stripped = scratch / name
        shutil.copy(path.resolve(), stripped)
        stripped.chmod(0o644)
        output_of("strip", "--strip-unneeded", stripped)
        files[f"{PACKAGE}/{name}"] = stripped.read_bytes()
    info = f"{PACKAGE}-{number}.dist-info"
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata(number).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: package_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    return files


def record(files: dict[str, bytes], path: str) -> bytes:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{path},,", ""]).encode()


def make_wheel(build: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    tag = f"py3-none-linux_{platform.machine()}"
    with tempfile.TemporaryDirectory() as scratch:
        files = wheel_files(build, pathlib.Path(scratch), tag)
    path = f"{PACKAGE}-{version()}.dist-info/RECORD"
    files[path] = record(files, path)
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{PACKAGE}-{version()}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=ROOT / "build/cuda",
        help="build folder with the library in it (default: build/cuda)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("dist"),
        help="where the wheel goes; made where it is missing (default: dist)",
    )
    arguments = parser.parse_args()
    try:
        print(make_wheel(arguments.build, arguments.out))
    except (Failure, OSError) as failure:
        print(f"package_wheel.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
