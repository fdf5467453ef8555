#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus's own Python client makes of a server's metrics.

Starts `reprise serve --metrics` with the shipped model, runs steps, and checks that the text
parses, that every metric has help and a type, that histograms are whole, and that docs/metrics.md
lists every metric with its type and labels, and no other.

  metrics_parse_test.py --program build/host/reprise --source REPOSITORY
"""
import argparse
import http.client
import math
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from prometheus_client.parser import text_string_to_metric_families

FLAGS = argparse.Namespace()
TIMEOUT_S = 120  # generous: the server may run under a sanitizer


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self.path)


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.directory.name)
        address = f"unix:{folder}/steps.sock"
        cls.server = subprocess.Popen(
            [FLAGS.program, "serve", "--model", FLAGS.source / "examples/byte-llama",
             "--device", "host", "--kv-cache", "64MiB", "--listen", address,
             "--metrics", f"unix:{folder}/metrics.sock", "--access-log", folder / "access.jsonl",
             "--record", folder / "recordings"],
            stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run([FLAGS.program, "health", "--address", address, "--wait", "60s"],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run(
            [FLAGS.program, "sched", "--address", address, "--requests", "4", "--random-prompts",
             "8", "--max-new-tokens", "8"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        connection = UnixConnection(f"{folder}/metrics.sock")
        connection.request("GET", "/metrics")
        cls.answer = connection.getresponse()
        cls.text = cls.answer.read().decode("utf-8")
        cls.families = list(text_string_to_metric_families(cls.text))

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        cls.server.wait(TIMEOUT_S)
        cls.directory.cleanup()

    def family(self, name):
        return next(family for family in self.families if family.name == name)

    def test_answer_says_what_it_is(self):
        self.assertEqual(self.answer.status, 200)
        self.assertEqual(self.answer.getheader("Content-Type"),
                         "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(int(self.answer.getheader("Content-Length")), len(self.text))

    def test_every_metric_has_help_type_and_a_name_of_ours(self):
        self.assertGreater(len(self.families), 40)
        names = [family.name for family in self.families]
        self.assertEqual(len(names), len(set(names)))
        for family in self.families:
            self.assertTrue(family.documentation, family.name)
            self.assertIn(family.type, ("counter", "gauge", "histogram"), family.name)
            self.assertTrue(family.name.startswith("reprise_"), family.name)
            self.assertGreater(len(family.samples), 0, family.name)

    def test_histograms_are_whole(self):
        histograms = [family for family in self.families if family.type == "histogram"]
        self.assertEqual(len(histograms), 4)
        for family in histograms:
            buckets, counts, sums = {}, {}, {}
            for sample in family.samples:
                graph = sample.labels["graph"]
                if sample.name.endswith("_bucket"):
                    edge = float(sample.labels["le"])
                    buckets.setdefault(graph, []).append((edge, sample.value))
                elif sample.name.endswith("_count"):
                    counts[graph] = sample.value
                else:
                    sums[graph] = sample.value
            for graph, pairs in buckets.items():
                self.assertEqual(pairs, sorted(pairs), f"{family.name} {graph}")
                self.assertEqual(pairs[-1], (math.inf, counts[graph]))
                self.assertEqual(sums[graph] > 0, counts[graph] > 0)
            self.assertEqual(buckets.keys(), counts.keys())

    def test_counters_agree_with_what_ran(self):
        steps = sum(sample.value for sample in self.family("reprise_steps").samples)
        device = self.family("reprise_step_device_seconds").samples
        self.assertGreaterEqual(steps, 8)
        self.assertEqual(steps, sum(s.value for s in device if s.name.endswith("_count")))
        self.assertEqual(self.family("reprise_sampled_tokens").samples[0].value, 32)
        self.assertEqual(self.family("reprise_prompt_tokens").samples[0].value, 32)

    def test_document_lists_them_all(self):
        document = (FLAGS.source / "docs/metrics.md").read_text()
        rows = re.findall(r"^\| `(reprise_\w+)` \| (\w+) \|([^|]*)\|", document, re.M)
        listed = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
        served = {}
        for family in self.families:
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            served[name] = (family.type, labels)
        self.assertEqual(listed.keys() - served.keys(), set(), "not served")
        self.assertEqual(served.keys() - listed.keys(), set(), "not in the document")
        for name, what in served.items():
            self.assertEqual(listed[name], what, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.parse_args(namespace=FLAGS)
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    main()
