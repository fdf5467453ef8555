# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents: which there are, what is shown below them, and how each is tried.

`reprise` commands run as they stand, but on the host device, with the model that the repository
ships, and with less work. Scripts must exist and know the options that they are shown with. Of
CMake's commands, presets and options must exist; what is configured and installed is tried in a
folder of its own. A command that no rule here knows is an error.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess

import markdown

TIMEOUT_S = 120
COMMAND_WORDS = ("reprise", "cmake", "ctest", "c++")
# Lines of command blocks that are no commands; tests/consumer_test.cmake tries them, and the
# compiler's.
OTHER_LINES = ("find_package(",)

# What programs_test.py tries, by document.
ELSEWHERE = {"docs/embedding.md": ("cc ", "c++ ", "nvcc ", "./", "python3 ", "pip ")}

# Less work, and what every machine has. None: a flag that goes.
SMALLER = {
    "--cupti": "auto",
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
    "--seconds": "0.01",
    "--cells": "1@32,2@64",
    "--standard-cells": None,
}

LIVE_TREE = """{"schema": "reprise-attention-tree/1", "rows": {"leaf": "default"},
                "batch": {"leaf": "all", "leaf_overhead": 0}}"""


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
        self.tls_server = None
        self.tls_address = ""
        self.files = []
        self.profile = None
        self.table = None
        (scratch / "examples").symlink_to(source / "examples")
        (scratch / "tests").symlink_to(source / "tests")
        (scratch / "prompts.txt").write_text("You may\n\nThis License\n")
        (scratch / "serve.toml").write_text('model = "examples/byte-llama"\n')
        (scratch / "trace.csv").write_text("time_s,prompt_tokens,new_tokens\n0,5,3\n0.01,9,2\n")
        (scratch / "steps.csv").write_text("rows,tokens,context,steps\n5,5,48,30\n3,40,,2\n")

    def close(self):
        for server in (self.server, self.tls_server):
            if server is not None:
                self.stop(server)

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

    def spawn(self, words):
        with open(self.scratch / "serve.log", "w", encoding="utf-8") as log:
            return subprocess.Popen(words, cwd=self.scratch, stdout=log, stderr=log)

    def start(self, words):
        address = self.new_address()
        process = self.spawn([*words, "--listen", address, "--metrics", address + ".metrics"])
        self.run([self.program, "health", "--address", address, "--wait", "60s"])
        return process, address

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        check(process.wait(TIMEOUT_S) == 0, "serve: did not stop cleanly")

    def make_identities(self):
        """The files that docs/identity.md shows how to make, by the commands that it shows."""
        blocks = markdown.blocks(self.source, self.source / "docs/identity.md")
        script = next(block.text for block in blocks if block.language == "sh")
        self.run(["sh", "-e", "-c", script])

    def serve_over_tls(self, words):
        """Starts the server that the command says, on an address of this host."""
        self.make_identities()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.tls_address = f"localhost:{free.getsockname()[1]}"
        self.tls_server = subprocess.Popen(
            [*words, "--listen", self.tls_address],
            cwd=self.scratch,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ready = ["--tls-ca", "ca.pem", "--wait", "60s"]
        self.run([self.program, "health", "--address", self.tls_address, *ready])

    def served(self):
        if self.server is None:
            words = [self.program, "serve", "--model", "examples/byte-llama", "--device", "host",
                     "--allow-administration", "--allow-attention-trees", "--swap-space",
                     "4MiB"]  # fmt: skip
            self.server, self.address = self.start(words)
        return self.address

    def recordings(self):
        """Files of a session that was recorded."""
        if not self.files:
            directory = self.scratch / "recorded"
            words = [self.program, "serve", "--model", "examples/byte-llama", "--device", "host"]
            process, address = self.start([*words, "--record", directory])
            self.run([self.program, "sched", "--address", address, "--prompt", "You may",
                      "--max-new-tokens", "4"])  # fmt: skip
            self.stop(process)
            self.files = [str(file) for file in directory.glob("*.record")]
        return self.files

    def profile_file(self):
        """A profile of the model that the repository ships."""
        if self.profile is None:
            self.profile = str(self.scratch / "profiled.json")
            words = ["--model", "examples/byte-llama", "--device", "host", "--rows", "1,2"]
            self.run([self.program, "profile", *words, "--contexts", "32,64", "--iterations", "2",
                      "--bandwidth-bytes", "1MiB", "--json", self.profile])  # fmt: skip
        return self.profile

    def linear_table(self):
        """A table of this device."""
        if self.table is None:
            self.table = str(self.scratch / "tuned.json")
            words = ["--model", "examples/byte-llama", "--device", "host", "--rows", "1,2"]
            self.run([self.program, "tune", "linear", *words, "--out", self.table])
        return self.table

    def replay(self, words):
        """Of what is recorded here, on a server of ours where it connects to one."""
        out = [self.program, "replay"]
        for option, value in zip(words[2:], [*words[3:], ""]):
            if option == "--connect":
                out += [option, self.served()]
            elif option == "--json":
                out += [option, str(self.scratch / "replay.json")]
            elif option in ("--device", "--model"):
                out += [option, {"--device": "host"}.get(option, value)]
        self.run([*out, *self.recordings()])

    def advise(self, words):
        """On what is recorded here, or on numbers."""
        i = words.index("recordings/*.record") if "recordings/*.record" in words else None
        smaller = self.smaller(words if i is None else words[:i] + words[i + 1 :])
        if "--verify" in words:
            smaller += ["--steps", "4", "--rounds", "1"]
        if "--address" in words:
            smaller += ["--address", self.served()]
        self.run([*smaller, *(self.recordings() if i is not None else [])])

    def graph_diff(self, words):
        """Of two graphs that differ, or of a file with itself."""
        if "--model" in words:
            self.run(self.smaller(words), expected=1)
            return
        graph = str(self.scratch / "dumped.json")
        words = ["--model", "examples/byte-llama", "--device", "host", "--graph", "decode/1"]
        self.run([self.program, "graph", "dump", *words, "--json", graph])
        self.run([self.program, "graph", "diff", graph, graph])

    def compare(self, words):
        """Of a profile with itself, which shows no difference."""
        options = [self.scratch / w if w.endswith(".json") else w for w in words[4:]]
        self.run([self.program, "compare", self.profile_file(), self.profile_file(), *options])

    @staticmethod
    def bench_sizes(name, out):
        """Options of less work that `reprise bench <name>` has not been given."""
        small = {"attention": {"--pool-bytes": "1MiB", "--calls": "2"},
                 "linear": {"--pool-bytes": "1MiB", "--calls": "2", "--bandwidth-bytes": "1MiB"},
                 "step": {"--cells": "1@32,2@64", "--bandwidth-bytes": "1MiB"}}[name]  # fmt: skip
        more = [word for pair in small.items() if pair[0] not in out for word in pair]
        if name == "attention" and "--rows" not in out:
            more += ["--rows", "1,2", "--contexts", "32,64"]
        if name == "linear" and "--rows" not in out:
            more += ["--rows", "1,2"]
        if name != "attention" and "--model" not in out and "--shape" not in out:
            more += ["--model", "examples/byte-llama"]
        return more

    def smaller(self, words):
        """The same command with less work."""
        command = words[1]
        i = 3 if command in ("bench", "graph", "tune", "sessions", "tree") else 2
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
            elif word == "--device" and value == "sim":
                out += [word, value]
            elif word == "--profile":
                out += [word, self.profile_file()]
            elif word == "--assert":
                out += [word, re.sub(r"\d+@\w+", "2@64", value)]
            elif word in ("--out", "--journal", "--access-log", "--record"):
                out += [word, str(self.scratch / value)]
            elif word == "--kv-exchange":
                (self.scratch / "exchange").mkdir(mode=0o700, exist_ok=True)
                out += [word, str(self.scratch / "exchange")]
            elif word == "--serve-config":  # not the one that others are started with
                out += [word, str(self.scratch / "advised.toml")]
            elif word in ("--max-rows", "--budget"):
                out += [word, "2"]
            elif word == "--max-context":
                out += [word, "96"]
            elif word in ("--tree", "--attention-tree"):
                pass  # of another device
            elif word == "--linear-table":
                out += [word, self.linear_table()]
            elif word == "--points":
                out += [word, re.sub(r"x\d{3,}", "x64", value)]
            elif word == "--round-activations":
                i -= 1  # the model that stands in has weights of 16 bits
            elif word == "--replays":
                out += [word, "2"]
            elif word == "--chunk":
                out += [word, "16"]
            elif word in ("--json", "--svg"):
                out += [word, str(self.scratch / f"out.{word[2:]}")]
            elif word in ("--listen", "--address", "--metrics"):
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
        of_server = command == "profile" and "--address" in words
        if command == "profile":
            out += [] if "--iterations" in out else ["--iterations", "2"]
            out += [] if "--bandwidth-bytes" in out or of_server else ["--bandwidth-bytes", "1MiB"]
        if command == "bench":
            out += [] if "--replays" in out else ["--replays", "2"]
            out += self.bench_sizes(words[2], out)
        if command == "tune" and words[2:3] == ["linear"]:
            small = {"--rounds": "1", "--replays": "1", "--pool-bytes": "1MiB", "--calls": "2",
                     "--rows": "2", "--out": str(self.scratch / "table.json")}  # fmt: skip
            for option, value in small.items():
                out += [] if option in out else [option, value]
            if "--model" not in out and "--shape" not in out:
                out += ["--model", "examples/byte-llama"]
        elif command == "tune":
            small = {"--max-rows": "2", "--max-context": "96", "--budget": "2", "--replays": "1",
                     "--pool-bytes": "64KiB", "--chunk": "32", "--max-leaves": "2",
                     "--out": str(self.scratch / "tree.json")}  # fmt: skip
            for option, value in small.items():
                out += [] if option in out else [option, value]
            if "--model" not in out and "--heads" not in out:
                out += ["--model", "examples/byte-llama"]
        loads = ("run", "serve", "profile", "graph", "advise", "bench", "tune", "check")
        if command in loads and "--device" not in out and not of_server:
            out += ["--device", "host"]
        return out

    def reprise(self, words):
        names = [word for word in words[1:] if not word.startswith("-")]
        is_name = len(words) <= 2 or (words[1] == "graph" and len(words) == 3)
        if words[1:2] == ["help"] or is_name:
            self.run([self.program, *(words[1:] if words[1] == "help" else ["help", *names])])
            return
        if "hip" in words:
            self.without_hip(words)
            return
        if words[1] == "replay":
            self.replay(words)
            return
        if words[1] == "compare":
            self.compare(words)
            return
        if words[1:3] == ["graph", "diff"]:
            self.graph_diff(words)
            return
        if words[1] == "advise":
            self.advise(words)
            return
        if words[1] == "report":
            self.run([self.program, "report", self.profile_file(), *words[3:]])
            return
        if words[1] in ("completion", "man"):
            self.run([self.program, *words[1 : words.index(">") if ">" in words else None]])
            return
        smaller = self.smaller(words)
        if "--print-config" in words:
            self.run(smaller)
        elif "--identities" in words:
            self.serve_over_tls(smaller)
        elif "--tls-ca" in words:
            self.run([*smaller, "--address", self.tls_address])
        elif words[1] == "serve":
            process, _ = self.start(smaller)
            self.stop(process)
        elif words[1] in ("sched", "health") or (words[1] == "profile" and "--address" in words):
            self.run([*smaller, "--address", self.served()])
        elif words[1] == "sessions":
            self.sessions(words, smaller)
        elif words[1] == "reload":  # of a server that has no such files
            done = self.run([*smaller, "--address", self.served()], expected=1)
            check("without files of identities or TLS" in done.stderr, done.stderr)
        elif words[1] == "tree":
            self.tree(words, smaller)
        elif words[1] == "top":
            self.run([*smaller, "--once", "--address", self.served() + ".metrics"])
        else:
            self.run(smaller)
        # As it stands, it is understood: what is missing is a GPU or a server, not an option.
        if words[1] == "health":
            return
        parsed = subprocess.run(
            [self.program, *words[1:], "--help"], capture_output=True, text=True, check=False
        )
        check(parsed.returncode == 0, parsed.stderr)

    def sessions(self, words, smaller):
        if "evict" not in words:
            self.run([*smaller, "--address", self.served()])
        elif len(words) > 3:  # of a session that is not there
            done = self.run([*smaller, "--address", self.served()], expected=1)
            check("none that is open" in done.stderr, done.stderr)

    def tree(self, words, smaller):
        """One that has the rows of the tree that is in force, where it is set."""
        if "set" in words[:3]:
            if len(words) == 3:
                return
            smaller[3] = self.scratch / "live_tree.json"
            smaller[3].write_text(LIVE_TREE)
        self.run([*smaller, "--address", self.served()])

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


@dataclasses.dataclass
class Shown:
    place: str  # "docs/wire.md:44", where its block begins
    command: str
    output: list[str]  # the lines below it
    about: str = ""  # the comment above it


def shown_in(block):
    """Commands with what is shown below them, and what looks like a command and is not known."""
    text = re.sub(r"\\\n\s*", "", block.text)
    prompted = re.search(r"^\$ ", text, re.MULTILINE) is not None
    found = []
    comment = ""
    for line in text.split("\n"):
        if prompted and not line.startswith("$ "):
            if found:
                found[-1].output.append(line)  # what it printed
            continue
        if line.startswith("#") or not line.strip():
            comment = line
            continue
        about, comment = comment, ""
        line = re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip()
        if line.startswith(ELSEWHERE.get(block.document, ())):
            continue
        if is_command(line):
            found.append(Shown(block.place, line, [], about))
        elif prompted or (block.language == "indented" and not line.startswith(OTHER_LINES)):
            raise Failure(f"no rule for {line}")
    return found


def is_code(block):
    return block.language not in ("", "indented") or "auto " in block.text


def shown_by(source, document):
    for block in markdown.blocks(source, document):
        if is_code(block):
            continue
        try:
            yield from shown_in(block)
        except Failure as failure:
            yield Shown(block.place, str(failure), [])
    for block in markdown.inline_code(source, document):
        # Names of other programs are no commands, and words that stand for something ("R",
        # "<preset>") are not for running.
        alone = block.text in COMMAND_WORDS
        if is_command(block.text) and not alone and not re.search(r"[<*]| [A-Z]( |$)", block.text):
            yield Shown(block.place, block.text, [])


def read_options(description):
    """--source, --build and --program of a test's command line, as whole paths."""
    parser = argparse.ArgumentParser(description=description)
    for option in ("--source", "--build", "--program"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    options = parser.parse_args()
    return options.source.resolve(), options.build.resolve(), options.program.resolve()
