#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work of PyTorch on a GPU, captured and replayed by Reprise's GraphManager.

Tensors lie in device memory that Reprise owns and PyTorch views through DLPack. Rows are captured
in buckets; a replay of 5 rows runs the graph of 8. When the output moves, the graphs are changed in
place. Needs reprise_embedded, PyTorch and a CUDA GPU; what is missing is said.
"""
import sys

try:
    import torch
    import reprise_embedded as reprise
except ImportError as missing:
    print(f"UNAVAILABLE: {missing}")
    sys.exit(1)

ROWS, COLUMNS = 16, 1024


def main() -> int:
    try:
        device = reprise.Device("cuda")
    except reprise.Unavailable as error:
        print(f"UNAVAILABLE: {error}")
        return 1
    stream = device.stream()
    memory = {name: device.empty((ROWS, COLUMNS)) for name in ("x", "y", "other")}
    tensors = {name: torch.from_dlpack(buffer) for name, buffer in memory.items()}
    x, y, other = tensors["x"], tensors["y"], tensors["other"]
    on_stream = torch.cuda.stream(torch.cuda.ExternalStream(stream.native_handle))

    def enqueue(s, bucket):  # y = 2 x + 1, into memory that is there: nothing is allocated
        with torch.cuda.stream(torch.cuda.ExternalStream(s.native_handle)):
            torch.mul(x[: bucket.rows], 2, out=y[: bucket.rows])
            y[: bucket.rows].add_(1)

    with reprise.GraphManager(
        stream, [1, 8, 16], enqueue, buffers={"x": memory["x"], "y": memory["y"]}
    ) as graphs:
        with on_stream:
            x.copy_(torch.arange(ROWS, device="cuda").float()[:, None].expand(ROWS, COLUMNS))
            y.zero_()
            other.zero_()
        report = graphs.replay(5)
        stream.synchronize()
        print(f"5 rows: graph of {report.capacity}, y[4] = {y[4, 0].item():g}")
        found = graphs.audit(5)
        print(f"{found.num_kernels} kernels, {found.num_pointers} pointers, "
              f"{len(found.foreign)} of them foreign")  # fmt: skip
        moved = graphs.move_buffer("y", memory["other"])
        graphs.replay(16)
        stream.synchronize()
        print(f"{moved.num_nodes} nodes changed in place, other[15] = {other[15, 0].item():g}")
        right = y[4, 0].item() == 9 and other[15, 0].item() == 31
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
