#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command that the documents and the program's help show.

usage: commands_test.py --source REPOSITORY --build BUILD --program REPRISE

`reprise` commands run as they stand, but on the host device, with the model that the repository
ships, and with less work. Scripts must exist and know the options that they are shown with. Of
CMake's commands, presets and options must exist; what is configured and installed is tried in a
folder of its own. A command that no rule here knows is an error.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import markdown

TIMEOUT_S = 120
COMMAND_WORDS = ("reprise", "cmake", "ctest", "c++")
# Lines of command blocks that are no commands; tests/consumer_test.cmake tries them, and the
# compiler's.
OTHER_LINES = ("find_package(",)

# Less work, and what every machine has. None: a flag that goes.
SMALLER = {
    "--device": "host",
    "--contexts": "32,64",
    "--shared-prefix": "16",
    "--max-new-tokens": "4",
    "--kv-cache": "64MiB",
    "--requests": "4",
    "--rate": "200",
    "--bandwidth-bytes": "1MiB",
    "--warmup": "0",
    "--sustain": "0.01",
    "--standard-cells": None,
}


class Failure(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failure(what)


class Commands:
    def __init__(self, source, build, program, scratch):
        self.source = source
        self.build = build
        self.program = program
        self.scratch = scratch
        self.sockets = 0
        self.server = None
        self.address = ""
        (scratch / "examples").symlink_to(source / "examples")
        (scratch / "prompts.txt").write_text("You may\n\nThis License\n")

    def close(self):
        if self.server is not None:
            self.stop(self.server)

    # ---- reprise ----

    def run(self, words, expected=0):
        done = subprocess.run(
            words, cwd=self.scratch, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        check(
            done.returncode == expected,
            f"{shlex.join(map(str, words))}\n  exit code {done.returncode}, expected {expected}\n"
            f"{done.stdout[-500:]}{done.stderr[-1500:]}",
        )
        return done

    def new_address(self):
        self.sockets += 1
        return f"unix:{self.scratch}/{self.sockets}.sock"

    def start(self, words):
        address = self.new_address()
        log = open(self.scratch / "serve.log", "w+", encoding="utf-8")
        process = subprocess.Popen(
            [*words, "--listen", address], cwd=self.scratch, stdout=log, stderr=log
        )
        self.run([self.program, "health", "--address", address, "--wait", "60s"])
        return process, address

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        check(process.wait(TIMEOUT_S) == 0, "serve: did not stop cleanly")

    def served(self):
        if self.server is None:
            words = [self.program, "serve", "--model", "examples/byte-llama", "--device", "host"]
            self.server, self.address = self.start(words)
        return self.address

    def smaller(self, words):
        """The same command with less work."""
        command = words[1]
        i = 3 if command in ("bench", "tune") else 2
        out = [self.program, *words[1:i]]
        while i < len(words):
            word = words[i]
            value = words[i + 1] if i + 1 < len(words) else ""
            i += 2
            if word == "--preset":
                out += ["--model", "examples/byte-llama"]
            elif word == "--rows":
                out += [word, "1,2" if command in ("profile", "bench") else "2"]
            elif word in ("--random-prompts", "--prompt-lengths"):
                out += [word, "4..16" if ".." in value else "8"]
            elif word == "--out" or word == "--journal":
                out += [word, str(self.scratch / value)]
            elif word in ("--max-rows", "--budget"):
                out += [word, "2"]
            elif word == "--max-context":
                out += [word, "96"]
            elif word in ("--tree", "--attention-tree"):
                pass  # of another device
            elif word == "--replays":
                out += [word, "2"]
            elif word == "--chunk":
                out += [word, "16"]
            elif word in ("--json", "--svg"):
                out += [word, str(self.scratch / f"out.{word[2:]}")]
            elif word == "--listen" or word == "--address":
                pass  # added by whoever knows one
            elif word in SMALLER and SMALLER[word] is None:
                i -= 1
            elif word in SMALLER:
                out += [word, SMALLER[word]]
            elif value.startswith("--") or not value:
                out += [word]
                i -= 1
            else:
                out += [word, value]
        if command == "profile":
            out += [] if "--iterations" in out else ["--iterations", "2"]
            out += [] if "--bandwidth-bytes" in out else ["--bandwidth-bytes", "1MiB"]
        if command == "bench":
            out += [] if "--replays" in out else ["--replays", "2"]
            out += ["--pool-bytes", "1MiB", "--calls", "2"]
            out += [] if "--rows" in out else ["--rows", "1,2", "--contexts", "32,64"]
        if command == "tune":
            small = {"--max-rows": "2", "--max-context": "96", "--budget": "2", "--replays": "1",
                     "--pool-bytes": "64KiB", "--chunk": "32", "--max-leaves": "2",
                     "--out": str(self.scratch / "tree.json")}  # fmt: skip
            for option, value in small.items():
                out += [] if option in out else [option, value]
            if "--model" not in out and "--heads" not in out:
                out += ["--model", "examples/byte-llama"]
        if command in ("run", "serve", "profile", "bench", "tune") and "--device" not in out:
            out += ["--device", "host"]
        return out

    def reprise(self, words):
        names = [word for word in words[1:] if not word.startswith("-")]
        if words[1:2] == ["help"] or len(words) <= 2:
            self.run([self.program, *(words[1:] if words[1] == "help" else ["help", *names])])
            return
        if "hip" in words:
            self.without_hip(words)
            return
        smaller = self.smaller(words)
        if words[1] == "serve":
            process, _ = self.start(smaller)
            self.stop(process)
        elif words[1] in ("sched", "health"):
            self.run([*smaller, "--address", self.served()])
        else:
            self.run(smaller)
        # As it stands, it is understood: what is missing is a GPU or a server, not an option.
        if words[1] == "health":
            return
        parsed = subprocess.run(
            [self.program, *words[1:], "--help"], capture_output=True, text=True, check=False
        )
        check(parsed.returncode == 0, parsed.stderr)

    def without_hip(self, words):
        """The failure that docs/devices.md shows, on machines without ROCm."""
        words = [self.program, *words[1:], "--hip-library", "/no/such/library"]
        said = self.run(words, expected=1).stderr
        check("device 'hip': no HIP library: " in said, said)

    # ---- scripts ----

    def script(self, words):
        path = self.source / words[0]
        check(path.exists(), f"{words[0]}: no such file")
        if len(words) == 1:
            return
        check(os.access(path, os.X_OK), f"{words[0]}: not executable")
        text = self.run([path, "--help"]).stdout
        for word in words[1:]:
            if word.startswith("--"):
                check(word in text, f"{words[0]}: --help does not know {word}")

    # ---- CMake ----

    def presets(self):
        file = json.loads((self.source / "CMakePresets.json").read_text())
        return [preset["name"] for preset in file["configurePresets"]]

    def cmake(self, words):
        options = dict(zip(words[1:], words[2:]))
        lists = "".join(
            p.read_text() for p in [self.source / "CMakeLists.txt", *self.source.glob("cmake/*")]
        )
        for word in words:
            if word.startswith("-DREPRISE"):
                name = word[2:].split("=")[0]
                check(re.search(rf"(option|set)\({name}\b", lists), f"cmake: no option {name}")
        if "--preset" in options:
            check(options["--preset"] in self.presets(), f"no preset {options['--preset']}")
        elif "-B" in options:
            folder = self.scratch / options["-B"]
            defined = [word for word in words if word.startswith("-D")]
            self.run(["cmake", "-S", self.source, "-B", folder, *defined, "-DREPRISE_HIP=OFF",
                      "-DREPRISE_CUDA=OFF"])  # fmt: skip
        elif "--install" in options:
            prefix = self.scratch / "prefix"
            component = options["--component"]
            self.run(["cmake", "--install", self.build, "--component", component, "--prefix", prefix])
            wanted = {"program": "bin/reprise", "development": "include/reprise"}[component]
            check((prefix / wanted).exists(), f"cmake --install: no {wanted}")
        else:
            check("--build" in options, f"no rule for {shlex.join(words)}")

    def ctest(self, words):
        pattern = words[words.index("-R") + 1]
        # Of the same tests in a folder of its own: ctest would overwrite the build's log.
        tests = self.scratch / "ctest"
        tests.mkdir(exist_ok=True)
        (tests / "CTestTestfile.cmake").write_text(f'subdirs("{self.build}")\n')
        said = self.run(["ctest", "--test-dir", tests, "-N", "-R", pattern]).stdout
        check(not said.rstrip().endswith("Total Tests: 0"), f"ctest: no test matches {pattern}")

    # ---- all ----

    def try_one(self, command):
        for part in command.split(" && "):
            words = shlex.split(part)
            if words[0] == "reprise":
                self.reprise(words)
            elif words[0].removeprefix("./").startswith("tools/"):
                self.script(words)
            elif words[0] == "cmake":
                self.cmake(words)
            elif words[0] == "ctest":
                self.ctest(words)
            elif words[0] != "c++":
                raise Failure(f"no rule for {part}")


def is_command(line):
    word = line.split(" ")[0]
    return word in COMMAND_WORDS or word.removeprefix("./").startswith("tools/")


def commands_of_block(block):
    """Commands, and what looks like one and is not known."""
    text = re.sub(r"\\\n\s*", "", block.text)
    shown = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    prompted = any(line.startswith("$ ") for line in shown)
    found = []
    for line in shown:
        if prompted and not line.startswith("$ "):
            continue  # what it printed
        line = re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip()
        if is_command(line):
            found.append(line)
        elif prompted or (block.language == "indented" and not line.startswith(OTHER_LINES)):
            raise Failure(f"no rule for {line}")
    return found


def is_code(block):
    return block.language not in ("", "indented") or "auto " in block.text


def commands_of(source, document):
    for block in markdown.blocks(source, document):
        if is_code(block):
            continue
        try:
            for command in commands_of_block(block):
                yield block.place, command
        except Failure as failure:
            yield block.place, str(failure)
    for block in markdown.inline_code(source, document):
        # Names of other programs are no commands, and words that stand for something ("R",
        # "<preset>") are not for running.
        alone = block.text in COMMAND_WORDS
        if is_command(block.text) and not alone and not re.search(r"[<*]| [A-Z]( |$)", block.text):
            yield block.place, block.text


def commands_of_help(program):
    for name in ("", "serve", "sched", "run", "health", "profile", "bench", "bench attention",
                 "tune", "tune attention"):
        words = [program, "help", *name.split()]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        text = re.sub(r" \\\n\s*", " ", text.split("Examples:\n")[1])
        for line in text.split("\n"):
            if line.startswith("  "):
                yield shlex.join(["reprise", "help", name]), line.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    source, build = arguments.source.resolve(), arguments.build.resolve()
    program = arguments.program.resolve()
    listed = [pair for d in markdown.documents(source) for pair in commands_of(source, d)]
    listed += commands_of_help(program)
    failures = []
    tried = set()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        commands = Commands(source, build, program, pathlib.Path(directory))
        try:
            for place, command in listed:
                if command in tried:
                    continue
                tried.add(command)
                try:
                    commands.try_one(command)
                except (Failure, subprocess.TimeoutExpired) as failure:
                    failures.append(f"{place}: {command}\n  {failure}")
        finally:
            commands.close()
    for failure in failures:
        print(failure)
    took = time.monotonic() - start
    print(f"{len(tried)} commands in {took:.0f} s, {len(failures)} failed")
    return 1 if failures or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
