#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Leaves the PTX of one architecture in a library of CUDA kernels, and marks it as PTX 9.0.

usage: mark_ptx.py libggml-cuda.so COMPUTE_CAPABILITY

node-llama-cpp's library has PTX 9.1 for compute capability 9.0 and no machine code, and drivers of
CUDA 13.0 refuse that version, whatever the code uses. Marked as 9.0 the same code is compiled by
the driver. Needs nothing but Python and libzstd. What of a container is changed: its one entry is
that PTX, compressed anew, and the version in the entry and in the text.
"""

import ctypes
import struct
import sys

if len(sys.argv) != 3:
    sys.exit(__doc__)
PATH, CAPABILITY = sys.argv[1], round(float(sys.argv[2]) * 10)
OLD, NEW = b".version 9.1", b".version 9.0"
MAGIC, PTX = b"\x50\xed\x55\xba", 1

zstd = ctypes.CDLL("libzstd.so.1")
for name in ("ZSTD_decompress", "ZSTD_compress", "ZSTD_compressBound"):
    getattr(zstd, name).restype = ctypes.c_size_t


def decompress(data, size):
    out = ctypes.create_string_buffer(size)
    got = zstd.ZSTD_decompress(out, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
    if got != size:
        sys.exit(f"{PATH}: got an entry that is not compressed by zstd")
    return out.raw


def compress(data):
    bound = zstd.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(bound)
    size = zstd.ZSTD_compress(out, ctypes.c_size_t(bound), data, ctypes.c_size_t(len(data)), 6)
    return out.raw[:size]


def marked(library, at):
    """The entry at `at` with its new text; its header has sizes at 8 and 16, the version at 24."""
    (header_bytes,) = struct.unpack_from("<I", library, at + 4)
    (stored,) = struct.unpack_from("<I", library, at + 16)
    (size,) = struct.unpack_from("<Q", library, at + 56)
    first = at + header_bytes
    data = compress(decompress(bytes(library[first : first + stored]), size).replace(OLD, NEW))
    padding = -len(data) % 8
    header = bytearray(library[at:first])
    struct.pack_into("<Q", header, 8, len(data) + padding)
    struct.pack_into("<I", header, 16, len(data))
    struct.pack_into("<HH", header, 24, 0, 9)
    return bytes(header) + data + bytes(padding)


def main():
    with open(PATH, "rb") as file:
        library = bytearray(file.read())
    found, begin = 0, library.find(MAGIC)
    while begin >= 0:
        version, header_bytes, size = struct.unpack_from("<HHQ", library, begin + 4)
        if (version, header_bytes) != (1, 16):
            begin = library.find(MAGIC, begin + 4)
            continue
        at, end, entry = begin + header_bytes, begin + header_bytes + size, b""
        while at < end:
            kind, _, entry_header, entry_bytes = struct.unpack_from("<HHIQ", library, at)
            if (kind, *struct.unpack_from("<I", library, at + 28)) == (PTX, CAPABILITY):
                entry = marked(library, at)
            at += entry_header + entry_bytes
        if not entry or len(entry) > size:
            sys.exit(f"{PATH}: got no PTX of {CAPABILITY / 10} that fits, in one of its containers")
        struct.pack_into("<Q", library, begin + 8, len(entry))
        library[end - size : end] = entry + bytes(size - len(entry))
        found, begin = found + 1, library.find(MAGIC, end)
    if found == 0:
        sys.exit(f"{PATH}: got no kernels")
    with open(PATH, "wb") as file:
        file.write(library)
    print(f"{PATH}: {found} containers")


if __name__ == "__main__":
    main()
