#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `reprise profile --html` as readers see it: drawn by Chromium in both themes, in a
wide window and in one as narrow as a phone's.

usage: page_pictures_test.py --source REPOSITORY --program reprise

Pages of an engine's profile, of one with traced kernels, clocks and power, and of a server's.
Checked of each: the picture's size and colours; that nothing is wider than the window; that every
section shows something; that no two labels of a chart lie over each other or outside of it; and
that scripts complain of nothing.
"""

import argparse
import html
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

OPTIONS = None
browser = None  # tools/browser.py, once its folder is known
TIMEOUT_S = 120
HEIGHT = 900

ENGINE_SECTIONS = [
    "Latency", "Points", "Work of a step", "Timeline of a step", "Roofline",
    "Read bandwidth by kernel", "Histogram", "Kernels"
]  # fmt: skip
RATED_SECTIONS = ["Roofline", "Read bandwidth by kernel"]
SERVER_SECTIONS = ["Latency", "Points", "Histogram"]

# Goes to the end of a page: what a reader would see there, as JSON in the element #report.
LOOK = """<script>
function shows(section) {
  const area = (node) => { const box = node.getBoundingClientRect();
                           return Math.max(box.width, 2) * Math.max(box.height, 2); };
  const shapes = [...section.querySelectorAll('svg :is(rect, circle, polyline)')]
      .filter((node) => area(node) > 4).length;
  const canvas = section.querySelector('canvas');
  const pixels = canvas && canvas.width && canvas.height ? new Uint32Array(
      canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer) : [0];
  return { name: section.querySelector('h2').textContent, shapes,
           rows: section.querySelectorAll('tbody tr').length,
           painted: pixels.filter((pixel) => pixel !== 0).length / pixels.length };
}
function badLabels(svg) {
  const room = svg.closest('section').getBoundingClientRect(), bad = [];
  const labels = [...svg.querySelectorAll('text')].filter((text) => !text.hasAttribute('transform'))
      .map((text) => [text.textContent, text.getBoundingClientRect()]);
  labels.forEach(([text, box], i) => {
    if (box.left < room.left || box.right > room.right) bad.push(`"${text}" is outside`);
    for (const [other, at] of labels.slice(0, i)) {
      if (Math.min(box.right, at.right) - Math.max(box.left, at.left) > 1 &&
          Math.min(box.bottom, at.bottom) - Math.max(box.top, at.top) > 3)
        bad.push(`"${text}" over "${other}"`);
    }
  });
  return bad.map((what) => svg.getAttribute('aria-label') + ': ' + what);
}
document.body.append(Object.assign(document.createElement('pre'), { id: 'report', hidden: true,
  textContent: JSON.stringify({
    width: innerWidth, needed: document.documentElement.scrollWidth,
    theme: document.documentElement.dataset.theme,
    sections: [...document.querySelectorAll('section')].map(shows),
    heads: [...document.querySelectorAll('th')].map((head) => head.textContent),
    bad: [...document.querySelectorAll('svg')].flatMap(badLabels) }) }));
</script></body>"""


def top_of_png(path, num_rows):
    """Width, height and the first rows, each a list of (red, green, blue). RGB or RGBA, 8 bits."""
    data = pathlib.Path(path).read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError(f"{path}: not a PNG file")
    chunks, at = [], 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if zlib.crc32(kind + body) != struct.unpack_from(">I", data, at + 8 + size)[0]:
            raise ValueError(f"{path}: {kind}: wrong checksum")
        chunks.append((kind, body))
        at += 12 + size
    width, height, bits, colours, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if bits != 8 or colours not in (2, 6) or interlaced:
        raise ValueError(f"{path}: got {bits} bits of kind {colours}, allowed: 8 bits, RGB or RGBA")
    lines = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    step = 3 if colours == 2 else 4
    if len(lines) != height * (1 + width * step):
        raise ValueError(f"{path}: not all rows are there")
    rows, before = [], bytearray(width * step)
    for i in range(min(num_rows, height)):
        start = i * (1 + width * step) + 1
        before = _unfiltered(lines[start - 1], lines[start : start + width * step], before, step)
        rows.append([tuple(before[x : x + 3]) for x in range(0, len(before), step)])
    return width, height, rows


def _unfiltered(kind, line, before, step):
    row = bytearray(line)
    for i in range(len(row) if kind else 0):
        left, up = row[i - step] if i >= step else 0, before[i]
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) // 2
        else:
            corner = before[i - step] if i >= step else 0
            guess = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
        row[i] = row[i] + guess & 255
    return row


def traced(profile):
    """The same with what an NVIDIA GPU tells: kernels that overlap, clocks, power and energy."""

    def of(us):
        return {"count": 3, "mean": us, "p50": us, "p90": us, "p99": us}

    profile = json.loads(json.dumps(profile))
    for point in profile["points"]:
        timeline, at = point["timeline"], 0.0
        timeline["traced_us"] = [us * 1.2 for us in timeline["stamped_us"]]
        timeline["traced_begin_us"] = []
        for us in timeline["stamped_us"]:
            timeline["traced_begin_us"].append(at)
            at += us
        point["traced"] = {name: of(at) for name in ("replay_us", "device_us", "launch_us")}
        point["traced"] |= {"skew": 0.1, "span_us": of(at), "gap_us": of(1), "overlap_us": of(at)}
        for op in point["ops"]:
            us = op["net_us"]
            op["traced"] = {"duration_us": us * 1.2, "exposed_us": us, "gap_us": 0.0}
        point["clock"] = {"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 690.5}
        point["energy_j"] = 690.5 * point["plain"]["replay_us"]["p50"] * 1e-6
    return profile


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        text = (OPTIONS.source / "tools/profile/page.html").read_text()
        cls.colours = {
            theme: {name: tuple(bytes.fromhex(re.search(rf"--{name}: #(\w+);", part)[1]))
                    for name in ("page", "ink")}
            for theme, part in zip(("light", "dark"), text.split(":root")[1:3])
        }  # fmt: skip

    def run_program(self, *arguments):
        run = subprocess.run([OPTIONS.program, *map(str, arguments)], capture_output=True,
                             text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(run.returncode, 0, run.stderr)

    def engine_profile(self):
        path = self.folder / "engine.json"
        if not path.exists():
            self.run_program("profile", "--model", OPTIONS.source / "examples/byte-llama",
                             "--device", "host", "--rows", "1,3,8", "--contexts", "64,256",
                             "--points", "3@128+1x20", "--padding", "--iterations", 10,
                             "--warmup", 1, "--bandwidth-bytes", "1MiB", "--json", path)
        return json.loads(path.read_text())

    def write_page(self, name, profile):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(profile))
        self.run_program("report", path, "--html", path.with_suffix(".html"))
        text = path.with_suffix(".html").read_text()
        path.with_suffix(".html").write_text(text.replace("</body>", LOOK))
        return path.with_suffix(".html").as_uri()

    def look(self, url, theme, width, sections):
        """Checks one picture, and returns what the page says of itself."""
        path = self.folder / "picture.png"
        drawn = browser.draw(browser.find(browser.NAMES[:1]), url, width=width, height=HEIGHT, theme=theme,
                             picture=path)
        self.assertEqual(drawn.complaints, [])
        report = re.search(r'<pre id="report"[^>]*>(.*?)</pre>', drawn.html)
        self.assertIsNotNone(report, "the page's scripts did not reach their end")
        seen = json.loads(html.unescape(report[1]))
        with self.subTest(page=url.rsplit("/", 1)[1], theme=theme, width=width):
            got_width, got_height, rows = top_of_png(path, 80)
            self.assertEqual((got_width, got_height), (width, HEIGHT))
            colours = self.colours[theme]
            self.assertEqual(rows[2][2], colours["page"])
            self.assertIn(colours["ink"], {pixel for row in rows for pixel in row}, "no title")
            self.assertEqual(seen["theme"], theme)
            self.assertEqual(seen["width"], width)
            self.assertLessEqual(seen["needed"], width, "wider than the window")
            self.assertEqual([section["name"] for section in seen["sections"]], sections)
            for section in seen["sections"]:
                # Of a canvas: more than a grid and its labels, however long a busy machine pauses.
                shown = section["shapes"] > 1 or section["rows"] or section["painted"] > 0.1
                self.assertTrue(shown, f"shows nothing: {section}")
            self.assertEqual(seen["bad"], [])
        return seen

    def test_of_an_engine_is_drawn(self):
        url = self.write_page("own", self.engine_profile())
        for theme in ("light", "dark"):
            for width in (1280, 390):
                seen = self.look(url, theme, width, ENGINE_SECTIONS)
        for head in ("p99.9", "of read", "products", "padding costs"):
            self.assertIn(head, seen["heads"])
        for head in ("SM clock", "power", "energy", "traced"):  # no host tells them
            self.assertNotIn(head, seen["heads"])

    def test_of_traced_kernels_is_drawn(self):
        url = self.write_page("traced", traced(self.engine_profile()))
        link = url + "#source=traced&point=3@128+1x20"
        for theme, width in (("dark", 1280), ("light", 390)):
            seen = self.look(link, theme, width, ENGINE_SECTIONS)
        for head in ("SM clock", "power", "energy", "traced", "exposed", "gaps"):
            self.assertIn(head, seen["heads"])
        # A link's theme comes before the reader's.
        drawn = browser.draw(browser.find(browser.NAMES[:1]), link + "&theme=light", width=390, height=HEIGHT,
                             theme="dark", picture=self.folder / "picture.png")
        self.assertEqual(drawn.complaints, [])
        self.assertIn('data-theme="light"', drawn.html)
        for pressed in ("light", "traced", "3@128+1x20"):
            self.assertIn(f'<button type="button" aria-pressed="true">{pressed}<', drawn.html)

    def server_profile(self, *flags):
        address = f"unix:{self.folder}/server.sock"
        path = self.folder / "server.json"
        with subprocess.Popen([OPTIONS.program, "serve", "--model",
                               OPTIONS.source / "examples/byte-llama", "--device", "host",
                               "--listen", address, *flags], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as server:
            try:
                self.run_program("profile", "--address", address, "--wait", "60s", "--rows", "1,8",
                                 "--contexts", "64,128", "--iterations", 10, "--json", path)
            finally:
                server.terminate()
        return json.loads(path.read_text())

    def test_of_a_server_is_drawn(self):
        url = self.write_page("served", self.server_profile())
        for theme, width in (("light", 1280), ("dark", 390)):
            seen = self.look(url, theme, width, SERVER_SECTIONS)
        self.assertIn("overhead p50", seen["heads"])

    def test_of_an_administrators_server_is_drawn(self):
        profile = self.server_profile("--allow-administration")
        url = self.write_page("administered", profile)
        for theme, width in (("light", 1280), ("dark", 390)):
            seen = self.look(url, theme, width, ENGINE_SECTIONS)
        for head in ("overhead p50", "of read", "of products"):
            self.assertIn(head, seen["heads"])
        # Where the device had no memory to measure rates in.
        profile["bandwidth"] = profile["products"] = None
        for point in profile["points"]:
            point["share_of_read_bandwidth"] = point["share_of_product_rate"] = None
        seen = self.look(self.write_page("unrated", profile), "light", 1280,
                         [head for head in ENGINE_SECTIONS if head not in RATED_SECTIONS])
        self.assertNotIn("of read", seen["heads"])


def main():
    global OPTIONS, browser
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, str(OPTIONS.source / "tools"))
    import browser  # noqa: PLC0415

    try:
        browser.find(browser.NAMES[:1])
    except browser.BrowserError as error:
        print(f"SKIPPED: {error}")
        return
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
