#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of the shape of Llama-3.1-8B by PyTorch, for the table of peers.

  torch_compile.py --rows 1,8,64,128 --context 512 --json torch.json

Random bf16 weights, a static KV cache of exactly the context, blocks compiled by torch.compile, the
whole step (embedding, 32 blocks, logits, greedy sampling) captured as one CUDA graph and replayed.
Times are of the device, by events around single replays that the device has been kept waiting for,
after a warm-up. What a server needs beside it (pages of KV, rows of different lengths, prompts) is
left out, to PyTorch's advantage. How far a compiled block is from an eager one is told. Needs a GPU of 24 GiB or more.
"""
import argparse
import json
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"torch_compile.py: {missing}", file=sys.stderr)
    sys.exit(2)

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB = 32, 4096, 32, 8, 128, 14336, 128256
EPS, THETA = 1e-5, 500000.0


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight


def rope(x, cos, sin):
    half = HEAD_DIM // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def block(x, w, k_cache, v_cache, cos, sin, at):
    """x: [rows, HIDDEN]; caches: [rows, KV_HEADS, context, HEAD_DIM]; at: [1], the new token's."""
    rows = x.shape[0]
    q, k, v = F.linear(rms_norm(x, w["norm1"]), w["qkv"]).split(
        (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM), dim=-1
    )
    q = rope(q.view(rows, HEADS, 1, HEAD_DIM), cos, sin)
    k = rope(k.view(rows, KV_HEADS, 1, HEAD_DIM), cos, sin)
    k_cache.index_copy_(2, at, k)
    v_cache.index_copy_(2, at, v.view(rows, KV_HEADS, 1, HEAD_DIM))
    attended = F.scaled_dot_product_attention(q, k_cache, v_cache, enable_gqa=True)
    x = x + F.linear(attended.reshape(rows, HEADS * HEAD_DIM), w["o"])
    gate, up = F.linear(rms_norm(x, w["norm2"]), w["gate_up"]).split(MLP, dim=-1)
    return x + F.linear(F.silu(gate) * up, w["down"])


class Model:
    """Weights of all layers, and the step of so many rows."""

    def __init__(self):
        def random(*shape):
            return torch.randn(*shape, dtype=torch.bfloat16, device="cuda") * 0.02

        self.embedding, self.head = random(VOCAB, HIDDEN), random(VOCAB, HIDDEN)
        ones = torch.ones(HIDDEN, dtype=torch.bfloat16, device="cuda")
        self.final_norm = ones
        qkv = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self.layers = [
            {
                "norm1": ones, "qkv": random(qkv, HIDDEN), "o": random(HIDDEN, HEADS * HEAD_DIM),
                "norm2": ones, "gate_up": random(2 * MLP, HIDDEN), "down": random(HIDDEN, MLP),
            }
            for _ in range(LAYERS)
        ]  # fmt: skip

    def step(self, run_block, run_head, tokens, caches, cos, sin, at):
        x = F.embedding(tokens, self.embedding)
        for w, (k, v) in zip(self.layers, caches):
            x = run_block(x, w, k, v, cos, sin, at)
        return run_head(x, self.final_norm, self.head)


def head(x, norm, weight):
    return F.linear(rms_norm(x, norm), weight).argmax(dim=-1)


def measure(model, rows, context, mode, replays):
    """Device times of single replays, milliseconds; and how far compiled blocks are from eager."""
    caches = [
        tuple(
            torch.randn(rows, KV_HEADS, context, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
            for _ in range(2)
        )
        for _ in range(LAYERS)
    ]
    inverse = THETA ** (-torch.arange(0, HEAD_DIM, 2, device="cuda").float() / HEAD_DIM)
    angles = (context - 1) * inverse
    cos = torch.cat((angles, angles)).cos().to(torch.bfloat16)
    sin = torch.cat((angles, angles)).sin().to(torch.bfloat16)
    at = torch.tensor([context - 1], device="cuda")
    tokens = torch.randint(VOCAB, (rows,), device="cuda")
    torch._dynamo.reset()
    run_block = torch.compile(block, mode=mode, fullgraph=True, dynamic=False)
    run_head = torch.compile(head, mode=mode, fullgraph=True, dynamic=False)
    x = F.embedding(tokens, model.embedding)
    arguments = (x, model.layers[0], *caches[0], cos, sin, at)
    apart = (run_block(*arguments).float() - block(*arguments).float()).abs().max().item()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            model.step(run_block, run_head, tokens, caches, cos, sin, at)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        model.step(run_block, run_head, tokens, caches, cos, sin, at)
    times = []
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for replay in range(replays + 10):
        torch.cuda._sleep(1_000_000)  # cycles: the replay is launched meanwhile
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= 10:
            times.append(begin.elapsed_time(end))
    return times, apart


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1,8,64,128", help="rows of a step, with commas")
    parser.add_argument("--context", type=int, default=512, help="tokens in every row's KV")
    parser.add_argument("--replays", type=int, default=100, help="measured, of each")
    parser.add_argument(
        "--mode", default="default", help="of torch.compile: default, max-autotune-no-cudagraphs"
    )
    parser.add_argument("--json", help="write the figures to this file too")
    flags = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_compile.py: no GPU", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    model = Model()
    cells = []
    with torch.inference_mode():
        for rows in map(int, flags.rows.split(",")):
            times, apart = measure(model, rows, flags.context, flags.mode, flags.replays)
            times.sort()
            cells.append(
                {
                    "rows": rows,
                    "context": flags.context,
                    "p50_ms": statistics.median(times),
                    "p10_ms": times[len(times) // 10],
                    "p90_ms": times[len(times) * 9 // 10],
                    "largest_difference_of_a_block": apart,
                }
            )
            print(json.dumps(cells[-1]), flush=True)
    found = {
        "what": "torch.compile",
        "argv": sys.argv,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(),
        "mode": flags.mode,
        "cells": cells,
    }
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
