# SPDX-License-Identifier: Apache-2.0
"""Draws a page with Chromium, without a screen: what the page became as HTML, what its scripts
complained of, and a picture.

Used by document_pictures.py and by tests/end_to_end/page_pictures_test.py.
"""

import dataclasses
import pathlib
import shutil
import subprocess
import tempfile

# In the order in which they are taken. The first starts in a second, and has windows of any width.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

TIMEOUT_S = 60
_COLOUR_SCHEMES = {"dark": 0, "light": 1}  # as Chromium's settings count them


class BrowserError(Exception):
    """A browser that is not there, or that failed; the message says which and what it said."""


@dataclasses.dataclass
class Drawn:
    html: str  # of the document when its scripts had run
    complaints: list[str]  # what came to the console, errors of scripts among it


def find(names=NAMES):
    """The first browser of these that is there. Raises BrowserError where there is none."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise BrowserError(f"there is none of {', '.join(names)} (Debian: chromium-headless-shell)")


def draw(browser, url, *, width, height, theme, picture):
    """Opens `url` in a window of so many pixels, for a reader whose system is "light" or "dark",
    and writes what it shows to the PNG file `picture`. Raises BrowserError.
    """
    pathlib.Path(picture).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as home:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--force-device-scale-factor=1", f"--user-data-dir={home}", "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={_COLOUR_SCHEMES[theme]}",
            f"--window-size={width},{height}", f"--screenshot={picture}", "--dump-dom", url
        ]  # fmt: skip
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False,
                                 timeout=TIMEOUT_S, env={"HOME": home, "PATH": "/usr/bin:/bin"})
        except subprocess.TimeoutExpired:
            raise BrowserError(f"{browser}: {url}: not drawn within {TIMEOUT_S} s") from None
    if run.returncode != 0 or not pathlib.Path(picture).exists():
        raise BrowserError(f"{browser}: {url}: exit code {run.returncode}, and said: "
                           f"{run.stderr.strip()[-2000:]}")  # fmt: skip
    said = [line for line in run.stderr.splitlines() if "CONSOLE" in line or "Uncaught" in line]
    return Drawn(html=run.stdout, complaints=said)
