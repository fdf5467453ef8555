#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the documents, docs/pictures: what the page of a profile looks like, and
the drawing of a layer's graph.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser  # noqa: E402

EXAMPLES = """examples:
  reprise profile --preset llama-3.1-8b --rows 1,8,64 --contexts 512,8k --json profile.json
  tools/document_pictures.py profile.json --program build/host/reprise
      writes profile_light.png, profile_dark.png, timeline.png and layer.svg to docs/pictures
  tools/document_pictures.py profile.json --program build/host/reprise --point 8@512 \\
      --source traced
      the same with this point's timeline, of traced kernels

Any build of the program does: it writes the page of a profile that another machine measured. It
says at the end what the pictures show; the text below them in the documents has to say the same.
Needs Chromium (Debian: chromium-headless-shell).
"""

WIDTH = 1280
FIRST_HEIGHT = 900  # of the window in which the page is measured
MOST_BYTES = 600_000  # of all pictures together: whoever clones the repository loads them
MODEL, GRAPH = "examples/byte-llama", "decode/8"  # of the layer that is drawn

# Goes to the end of the page, and says where what shall be on the picture ends.
MEASURE = """<script>
document.documentElement.dataset.bottom = Math.ceil(
    document.querySelector('%s').closest('section, .pair').getBoundingClientRect().bottom + 16);
</script></body>"""
# Leaves the timeline and what stands beside the roofline.
TIMELINE_ALONE = """<style>
header, #warnings, #points, main > section:not(:has(#timeline)) { display: none; }
main { padding-top: 0; }
</style>"""


class PictureError(Exception):
    """Pictures that cannot be made; the message says which and why."""


def read_profile(path):
    try:
        profile = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PictureError(f"{path}: {error}") from None
    schema = profile.get("schema") if isinstance(profile, dict) else None
    if schema != "reprise.profile/1":
        raise PictureError(f'{path}: schema: got "{schema}", allowed: "reprise.profile/1"')
    return profile


def point_names(profile):
    return [point.get("name") or f"{point['rows']}@{point['context']}"
            for point in profile["points"]]  # fmt: skip


def run_program(program, *arguments):
    try:
        run = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                             check=False)
    except OSError as error:
        raise PictureError(f"{program}: {error.strerror}") from None
    if run.returncode != 0:
        raise PictureError(f"{program}: exit code {run.returncode}: {run.stderr.strip()}")


class Page:
    """The page of a profile in a folder of its own."""

    def __init__(self, program, profile, fragment):
        self._scratch = tempfile.TemporaryDirectory()
        self._path = pathlib.Path(self._scratch.name) / "page.html"
        run_program(program, "report", profile, "--html", self._path)
        self._text = self._path.read_text()
        self._url = self._path.as_uri() + "#" + fragment
        self._browser = browser.find()

    def draw(self, picture, theme, last, more=""):
        """From the top to what the selector `last` names, with `more` at the page's end."""
        self._path.write_text(self._text.replace("</body>", more + MEASURE % last))
        height = FIRST_HEIGHT
        for _ in range(2):
            drawn = browser.draw(self._browser, self._url, width=WIDTH, height=height, theme=theme,
                                 picture=picture)
            if drawn.complaints:
                raise PictureError(f"{picture}: the page complains: {drawn.complaints[0]}")
            height = int(re.search(r'data-bottom="(\d+)"', drawn.html)[1])


def draw_all(options, profile):
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    fragment = urllib.parse.urlencode({"point": options.point or point_names(profile)[0],
                                       "source": options.source})  # fmt: skip
    page = Page(options.program, options.profile, fragment)
    for theme in ("light", "dark"):
        page.draw(out / f"profile_{theme}.png", theme, "#timeline")
    page.draw(out / "timeline.png", "light", "#roof", TIMELINE_ALONE)
    run_program(options.program, "graph", "dump", "--model", options.model, "--device", "host",
                "--graph", GRAPH, "--layer-svg", out / "layer.svg")
    return [out / name for name in
            ("profile_light.png", "profile_dark.png", "timeline.png", "layer.svg")]  # fmt: skip


def what_it_shows(profile):
    engine = profile["engine"]
    device = ", ".join(filter(None, (engine["device"]["name"], engine["device"]["driver"])))
    command = " ".join(profile.get("argv") or []) or "the file does not tell the command"
    return f"{engine['model']['name']} in {engine['dtype']} on {device}; {command}"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=pathlib.Path, help="what `reprise profile --json` wrote")
    parser.add_argument("--program", required=True, help="the reprise program, of any build")
    parser.add_argument("--point", help="whose timeline is shown (default: the first)")
    parser.add_argument("--source", choices=("stamped", "traced"), default="stamped",
                        help="times of the timeline (default: %(default)s)")
    parser.add_argument("--model", type=pathlib.Path, default=root / MODEL,
                        help=f"whose layer is drawn (default: {MODEL})")
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs/pictures",
                        help="folder for the pictures (default: docs/pictures)")
    options = parser.parse_args()
    try:
        profile = read_profile(options.profile)
        names = point_names(profile)
        if options.point and options.point not in names:
            raise PictureError(f'--point: got "{options.point}", allowed: {", ".join(names)}')
        if options.source == "traced" and not any(p.get("traced") for p in profile["points"]):
            raise PictureError(f"--source: {options.profile} has no traced kernels")
        pictures = draw_all(options, profile)
        total = sum(path.stat().st_size for path in pictures)
        if total > MOST_BYTES:
            raise PictureError(f"pictures: got {total:,} bytes, allowed: {MOST_BYTES:,}; a profile "
                               "of fewer points makes smaller ones")  # fmt: skip
    except (PictureError, browser.BrowserError) as error:
        print(f"document_pictures.py: {error}", file=sys.stderr)
        return 1
    for path in pictures:
        print(f"{path.stat().st_size:>9,} bytes  {path}")
    print(f"they show: {what_it_shows(profile)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
