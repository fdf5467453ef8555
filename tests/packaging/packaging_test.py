#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What packaging/ and tools/package_deb.sh make of a build.

usage: packaging_test.py --source REPOSITORY --build BUILD --program REPRISE

The unit is one that systemd takes and finds well confined, flags in configuration files are flags
of `reprise serve`, and a package of the build has the files that it should have and a program that
runs. Nothing is installed. What a machine has no tool for is skipped by name.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

FLAGS = argparse.Namespace()
TIMEOUT_S = 120
# systemd's measure of what a service could do, times ten: 0 is nothing, 100 is root's all.
MOST_EXPOSURE = 25


def run(words, **options):
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        **options,
    )


def has(tool):
    return shutil.which(tool) is not None


def packaged(path):
    return (FLAGS.source / "packaging" / path).read_text()


class FlagsOfFiles(unittest.TestCase):
    def serve(self, flags):
        """With these flags, and no model: exit code 2 where it does not know them."""
        done = run([FLAGS.program, "serve", *flags])
        return done.returncode, done.stderr

    def check_flags(self, flags, model):
        self.assertFalse(pathlib.Path(model).exists())
        code, said = self.serve(flags)
        self.assertEqual(code, 1, said)
        self.assertIn(model, said)

    def test_of_the_service_are_known_to_serve(self):
        file = FLAGS.source / "packaging/systemd/serve.toml"
        self.check_flags(["--config", file], "/var/lib/reprise/model")
        self.assertIn(
            "ExecStart=/usr/bin/reprise serve --config /etc/reprise/serve.toml\n",
            packaged("systemd/reprise.service"),
        )

    def test_of_the_image_are_known_to_serve(self):
        text = packaged("container/Containerfile").replace("\\\n", "")
        command = {
            word: json.loads(value)
            for word, value in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.M)
        }
        self.assertEqual(command["ENTRYPOINT"], ["reprise", "serve"])
        flags = command["CMD"]
        self.check_flags(flags, flags[flags.index("--model") + 1])
        health = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.M).group(1))
        self.assertIn(health[health.index("--address") + 1], command["CMD"])

    def test_unknown_ones_would_be_found(self):
        self.assertEqual(self.serve(["--model", "/no/such", "--no-such"])[0], 2)


class Unit(unittest.TestCase):
    def setUp(self):
        if not has("systemd-analyze"):
            self.skipTest("there is no systemd-analyze (Debian: systemd)")
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def write(self, text):
        unit = pathlib.Path(self.directory.name) / "reprise.service"
        unit.write_text(text.replace("/usr/bin/reprise", str(FLAGS.program)))
        return unit

    def verify(self, text):
        done = run(["systemd-analyze", "verify", "--man=no", self.write(text)])
        return done.returncode, done.stdout + done.stderr

    def test_is_one_that_systemd_takes_without_a_word(self):
        self.assertEqual(self.verify(packaged("systemd/reprise.service")), (0, ""))

    def test_with_a_mistake_is_refused(self):
        text = packaged("systemd/reprise.service").replace("ProtectHome=", "ProtectHouse=")
        self.assertIn("ProtectHouse", self.verify(text)[1])

    def test_confines_the_service(self):
        unit = self.write(packaged("systemd/reprise.service"))
        limit = f"--threshold={MOST_EXPOSURE}"
        done = run(["systemd-analyze", "security", "--no-pager", "--offline=true", limit, unit])
        if "unrecognized option" in done.stderr:
            self.skipTest("this systemd-analyze cannot look at a file")
        self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)


# Where `cmake --install` puts what the program prints with these arguments.
SHELL_FILES = {
    "share/man/man1/reprise.1": ["man"],
    "share/bash-completion/completions/reprise": ["completion", "bash"],
    "share/zsh/site-functions/_reprise": ["completion", "zsh"],
    "share/fish/vendor_completions.d/reprise.fish": ["completion", "fish"],
}


class Installation(unittest.TestCase):
    def test_of_the_program_has_its_manual_page_and_completion(self):
        with tempfile.TemporaryDirectory() as directory:
            prefix = pathlib.Path(directory)
            done = run(["cmake", "--install", FLAGS.build, "--component", "program", "--prefix",
                        prefix])  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            files = {str(file.relative_to(prefix)) for file in prefix.rglob("*") if file.is_file()}
            self.assertEqual(files, {"bin/reprise", *SHELL_FILES})
            for file, arguments in SHELL_FILES.items():
                printed = run([FLAGS.program, *arguments]).stdout
                self.assertNotEqual(printed, "")
                self.assertEqual((prefix / file).read_text(), printed)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool in ("dpkg-deb", "dpkg-shlibdeps", "strip"):
            if not has(tool):
                raise unittest.SkipTest(f"there is no {tool} (Debian: dpkg-dev, binutils)")
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.out = pathlib.Path(cls.directory.name)
        cls.package = cls.make("first")
        cls.root = cls.out / "root"
        subprocess.run(["dpkg-deb", "--extract", cls.package, cls.root], check=True)

    @classmethod
    def make(cls, folder, *options):
        script = FLAGS.source / "tools/package_deb.sh"
        done = run([script, "--build", FLAGS.build, "--out", cls.out / folder, "--compression",
                    "none", *options])  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return pathlib.Path(done.stdout.strip())

    def field(self, name, package=None):
        return run(["dpkg-deb", "--field", package or self.package, name]).stdout.strip()

    def test_says_what_it_is(self):
        version = re.match(r"reprise (\S+) ", run([FLAGS.program, "--version"]).stdout).group(1)
        architecture = run(["dpkg", "--print-architecture"]).stdout.strip()
        self.assertEqual(self.field("Version"), f"{version}-1")
        self.assertEqual(self.package.name, f"reprise_{version}-1_{architecture}.deb")
        self.assertRegex(self.field("Depends"), r"^libc6 \(>= [0-9.]+\).*, adduser$")
        other = self.make("other", "--version", "9.8-7", "--maintainer", "A B <a@example.org>")
        self.assertEqual(self.field("Version", other), "9.8-7")
        self.assertEqual(self.field("Maintainer", other), "A B <a@example.org>")

    def test_says_how_large_it_is_by_its_files_alone(self):
        """By the rule of dpkg-gencontrol; blocks on a disk differ from one build to the next."""
        kib = sum(
            -(-path.stat().st_size // 1024) if path.is_file() else 1
            for path in [self.root, *self.root.rglob("*")]
        )
        self.assertEqual(self.field("Installed-Size"), str(kib))

    def test_has_the_files_and_root_owns_them(self):
        listed = run(["dpkg-deb", "--contents", self.package]).stdout.splitlines()
        files = {line.split()[5].removeprefix("."): line for line in listed}
        for path, mode in (
            ("/usr/bin/reprise", "-rwxr-xr-x"),
            ("/lib/systemd/system/reprise.service", "-rw-r--r--"),
            ("/etc/reprise/serve.toml", "-rw-r--r--"),
            ("/usr/share/doc/reprise/copyright", "-rw-r--r--"),
            ("/usr/share/doc/reprise/changelog.gz", "-rw-r--r--"),
            ("/usr/share/doc/reprise/changelog.Debian.gz", "-rw-r--r--"),
            ("/usr/share/doc/reprise/docs/deploy.md", "-rw-r--r--"),
            ("/usr/share/man/man1/reprise.1.gz", "-rw-r--r--"),
            ("/usr/share/bash-completion/completions/reprise", "-rw-r--r--"),
            ("/usr/share/zsh/vendor-completions/_reprise", "-rw-r--r--"),
            ("/usr/share/fish/vendor_completions.d/reprise.fish", "-rw-r--r--"),
        ):
            self.assertIn(path, files)
            self.assertTrue(files[path].startswith(mode), files[path])
        for line in listed:
            self.assertEqual(line.split()[1], "root/root", line)
            self.assertNotRegex(line[5:10], "w", line)
        allowed = ("/usr/bin", "/usr/share/doc/reprise", "/usr/share/man/man1", "/etc/reprise",
                   "/usr/share/bash-completion", "/usr/share/zsh", "/usr/share/fish",
                   "/lib/systemd/system", "/usr/share/lintian/overrides/reprise")  # fmt: skip
        for path in files:
            if not path.endswith("/"):
                self.assertTrue(path.startswith(allowed), path)

    def test_has_a_program_that_runs(self):
        done = run([self.root / "usr/bin/reprise", "--version"])
        self.assertEqual(done.stdout, run([FLAGS.program, "--version"]).stdout)
        self.assertEqual(run(["nm", self.root / "usr/bin/reprise"]).stdout, "", "stripped")

    def test_keeps_what_the_operator_changes(self):
        files = self.out / "control"
        subprocess.run(["dpkg-deb", "--control", self.package, files], check=True)
        self.assertEqual((files / "conffiles").read_text(), "/etc/reprise/serve.toml\n")
        sums = (files / "md5sums").read_text()
        self.assertIn("usr/bin/reprise\n", sums)
        self.assertNotIn("etc/", sums)
        checked = run(["md5sum", "--check", "--quiet", files / "md5sums"], cwd=self.root)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_makes_a_system_user(self):
        """The script that runs at installation, with stand-ins for all that it would change."""
        bin_folder = self.out / "bin"
        bin_folder.mkdir()
        log = self.out / "called"
        for tool in ("adduser", "getent", "install", "systemctl"):
            path = bin_folder / tool
            path.write_text(f'#!/bin/sh\necho "{tool} $*" >> {log}\n')
            path.chmod(0o755)
        environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        files = self.out / "scripts"
        subprocess.run(["dpkg-deb", "--control", self.package, files], check=True)
        done = run([files / "postinst", "configure", ""], env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        called = log.read_text()
        self.assertIn("adduser --system --group", called)
        self.assertIn("adduser --quiet reprise render", called)
        self.assertNotIn("restart", called)
        self.assertNotRegex(called, r"systemctl .*(start|enable)")

    def test_of_the_same_build_is_the_same(self):
        self.assertEqual(self.make("again").read_bytes(), self.package.read_bytes())

    def test_is_refused_where_it_cannot_be(self):
        script = FLAGS.source / "tools/package_deb.sh"
        for options, words in (
            (["--build", self.out], "no program reprise in it"),
            (["--build", FLAGS.build, "--compression", "rar"], 'got "rar", allowed: xz'),
            (["--build", FLAGS.build, "--version", "a b"], 'got "a b", allowed: a version'),
            (["--build", FLAGS.build, "--maintainer", "me"], 'got "me", allowed: "Name <address>"'),
            (["--out"], "--out: got no value"),
            (["--no-such"], 'unknown argument "--no-such"'),
        ):
            done = run([script, *options])
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.parse_args(namespace=FLAGS)
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    main()
