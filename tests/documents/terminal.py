# SPDX-License-Identifier: Apache-2.0
"""Programs on pseudo-terminals, and what a person sees there in the end.

No threads: whoever waits for one program reads what all of them print.
"""

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

COLUMNS = 100
ROWS = 50

ESCAPE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")


class Screen:
    """What remains of what was printed: lines are drawn over, erased, and broken at the edge."""

    def __init__(self, columns=COLUMNS):
        self.columns = columns
        self.unknown = []  # what it cannot draw
        self.other = []  # what the second screen last showed, as `reprise top` has one
        self.main = None  # rows of the first screen, while the second one is shown
        self.clear()

    def clear(self):
        self.rows = [[]]
        self.goes_on = [False]  # the terminal broke this row, and the next one belongs to it
        self.row = self.column = 0

    def draw(self, text):
        i = 0
        while i < len(text):
            escape = ESCAPE.match(text, i)
            if escape:
                self.escape(*escape.groups())
                i = escape.end()
                continue
            self.character(text[i])
            i += 1
        return self

    def character(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.next_row()
        elif ord(character) < 0x20 or ord(character) == 0x7F:
            self.unknown.append(character)
        else:
            # At the right edge the cursor stays; the next character goes to a new row.
            if self.column == self.columns:
                self.goes_on[self.row] = True
                self.next_row()
                self.column = 0
            row = self.rows[self.row]
            row += " " * (self.column + 1 - len(row))
            row[self.column] = character
            self.column += 1

    def next_row(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])
            self.goes_on.append(False)

    def escape(self, numbers, letter):
        if letter == "m" or (numbers == "?25" and letter in "hl"):
            return  # a colour; the cursor goes or comes
        if letter == "K" and numbers in ("", "0"):
            del self.rows[self.row][self.column :]
        elif letter == "J" and numbers in ("", "0"):
            del self.rows[self.row][self.column :]
            del self.rows[self.row + 1 :], self.goes_on[self.row + 1 :]
        elif letter == "H" and not numbers and self.main is not None:
            self.row = self.column = 0
        elif (numbers, letter) == ("?1049", "h"):
            self.main = (self.rows, self.goes_on, self.row, self.column)
            self.clear()
        elif (numbers, letter) == ("?1049", "l") and self.main is not None:
            self.other = self.lines()
            self.rows, self.goes_on, self.row, self.column = self.main
            self.main = None
        else:
            self.unknown.append(f"\x1b[{numbers}{letter}")

    def lines(self):
        """As the program printed them: rows that the terminal broke are one line again."""
        lines = [""]
        for row, goes_on in zip(self.rows, self.goes_on):
            lines[-1] += "".join(row)
            if not goes_on:
                lines[-1] = lines[-1].rstrip()
                lines.append("")
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Terminal:
    """A program on a terminal of its own. close() ends it and what it started, on every way out."""

    running = []

    def __init__(self, words, cwd):
        self.output = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.open = True
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        try:
            self.process = subprocess.Popen(
                words,
                cwd=cwd,
                env={**environment, "TERM": "xterm"},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                # Where it is the terminal of the session, it is hung up when this process dies.
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        finally:
            os.close(slave)
        Terminal.running.append(self)

    @staticmethod
    def read_all(seconds):
        """Takes what any of them printed, and waits for some. False: nobody printed anything."""
        terminals = {t.master: t for t in Terminal.running if t.open}
        ready = select.select(list(terminals), [], [], seconds)[0]
        for master in ready:
            terminals[master].read()
        return bool(ready)

    def read(self):
        try:
            data = os.read(self.master, 65536)
        except OSError as error:  # nobody has the other end open
            if error.errno != errno.EIO:
                raise
            data = b""
        self.output += self.decoder.decode(data, final=not data)
        self.open = bool(data)

    def type(self, text):
        os.write(self.master, text.encode())

    def send_signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds):
        """Reads to the end, and returns the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            Terminal.read_all(0.01)
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.process.args, seconds, self.output[-2000:])
        while self.open and Terminal.read_all(0.1):
            pass
        self.close()
        return self.process.returncode

    def wait_for(self, text, seconds):
        end = time.monotonic() + seconds
        while text not in self.output and self.process.poll() is None:
            Terminal.read_all(0.01)
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.process.args, seconds, self.output[-2000:])

    def close(self):
        if self not in Terminal.running:
            return
        Terminal.running.remove(self)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break  # nothing of it is left
            end = time.monotonic() + 5
            while self.process.poll() is None and time.monotonic() < end:
                self.drain()
        self.process.wait()
        os.close(self.master)

    def drain(self):
        """Who cannot print does not end."""
        if self.open and select.select([self.master], [], [], 0.05)[0]:
            self.read()
        elif not self.open:
            time.sleep(0.05)

    @staticmethod
    def close_all():
        for terminal in list(Terminal.running):
            terminal.close()

    def screen(self):
        return Screen().draw(self.output)
