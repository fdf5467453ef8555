# SPDX-License-Identifier: Apache-2.0
"""How tests that read the documents alone are started: with --source, the repository."""

import argparse
import pathlib
import sys
import unittest

SOURCE: pathlib.Path


def main(doc: str):
    """Runs the tests of the script that calls it; doc: what --help says of it."""
    global SOURCE
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    options, rest = parser.parse_known_args()
    SOURCE = options.source
    unittest.main(argv=[sys.argv[0], *rest])
