#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of a Llama shape: bf16 weights at random, norms of ones, and a vocabulary of
bytes and names without meaning.

usage: random_gguf.py FILE [SHAPE]

For timing another runtime beside Reprise's preset of the same name: llama-3.2-1b, which is meant
where no shape is named, or llama-3.1-8b. Products have values of +-0.008 to +-0.031, as N(0, 0.02)
has mostly; a block of them repeats, from another place in every tensor. Needs nothing but Python.
"""

import os
import struct
import sys

# Hidden, layers, heads, size of a head, feed-forward; whether the embedding is the output's weight.
SHAPES = {
    "llama-3.2-1b": (2048, 16, 32, 64, 8192, True),
    "llama-3.1-8b": (4096, 32, 32, 128, 14336, False),
}
SHAPE = sys.argv[2] if len(sys.argv) > 2 else "llama-3.2-1b"
if len(sys.argv) not in (2, 3) or SHAPE not in SHAPES:
    sys.exit(__doc__)
HIDDEN, LAYERS, HEADS, HEAD_SIZE, FEED_FORWARD, TIED = SHAPES[SHAPE]
KV_HEADS, VOCABULARY, CONTEXT = 8, 128256, 131072
ALIGNMENT = 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # of metadata
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # of tokens
F32, BF16 = 0, 30  # of tensors
# The upper bytes of bf16 whose lower byte is anything: signs, and exponents of 2^-7 and 2^-6.
UPPER_BYTES = bytes((0x3C, 0xBC)[i & 1] for i in range(256))


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def array(name, kind, elements):
    """Of the vocabulary, one element for each token."""
    header = struct.pack("<IIQ", ARRAY, kind, VOCABULARY)
    return string(f"tokenizer.ggml.{name}") + header + elements


def metadata():
    values = {
        "general.architecture": "llama",
        "general.name": f"{SHAPE} shape, random weights",
        "general.alignment": ALIGNMENT,
        "general.file_type": 32,  # mostly bf16
        "llama.vocab_size": VOCABULARY,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.key_length": HEAD_SIZE,
        "llama.attention.value_length": HEAD_SIZE,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HEAD_SIZE,
        "llama.rope.freq_base": 500000.0,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    out = []
    for key, value in values.items():
        if isinstance(value, str):
            out.append(string(key) + struct.pack("<I", STRING) + string(value))
        elif isinstance(value, int):
            out.append(string(key) + struct.pack("<II", UINT32, value))
        else:
            out.append(string(key) + struct.pack("<If", FLOAT32, value))
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    tokens += [f"t{i}" for i in range(len(tokens), VOCABULARY)]
    kinds += [NORMAL] * (VOCABULARY - len(kinds))
    out.append(array("tokens", STRING, b"".join(map(string, tokens))))
    out.append(array("scores", FLOAT32, bytes(4 * VOCABULARY)))
    out.append(array("token_type", INT32, struct.pack(f"<{VOCABULARY}i", *kinds)))
    return out


def tensors():
    """Name, type, sizes from the fastest dimension on."""
    yield "token_embd.weight", BF16, (HIDDEN, VOCABULARY)
    if not TIED:
        yield "output.weight", BF16, (HIDDEN, VOCABULARY)
    yield "output_norm.weight", F32, (HIDDEN,)
    yield "rope_freqs.weight", F32, (HEAD_SIZE // 2,)
    for i in range(LAYERS):
        yield f"blk.{i}.attn_norm.weight", F32, (HIDDEN,)
        yield f"blk.{i}.ffn_norm.weight", F32, (HIDDEN,)
        yield f"blk.{i}.attn_q.weight", BF16, (HIDDEN, HEADS * HEAD_SIZE)
        yield f"blk.{i}.attn_k.weight", BF16, (HIDDEN, KV_HEADS * HEAD_SIZE)
        yield f"blk.{i}.attn_v.weight", BF16, (HIDDEN, KV_HEADS * HEAD_SIZE)
        yield f"blk.{i}.attn_output.weight", BF16, (HEADS * HEAD_SIZE, HIDDEN)
        yield f"blk.{i}.ffn_gate.weight", BF16, (HIDDEN, FEED_FORWARD)
        yield f"blk.{i}.ffn_up.weight", BF16, (HIDDEN, FEED_FORWARD)
        yield f"blk.{i}.ffn_down.weight", BF16, (FEED_FORWARD, HIDDEN)


def padded(size):
    return -size % ALIGNMENT


def random_block():
    elements = bytearray(os.urandom(1 << 26))
    elements[1::2] = elements[1::2].translate(UPPER_BYTES)
    return memoryview(elements)


def write_bf16(file, count, block, number):
    left, start = 2 * count, number * 7919 * 2 % len(block)
    while left > 0:
        part = block[start : start + left]
        file.write(part)
        left, start = left - len(part), 0


def main():
    values, descriptions, offset = metadata(), [], 0
    for name, kind, sizes in tensors():
        count = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
        descriptions.append((name, kind, sizes, count, offset))
        offset += count * (4 if kind == F32 else 2)
        offset += padded(offset)
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(descriptions), len(values)))
        file.write(b"".join(values))
        for name, kind, sizes, _, at in descriptions:
            file.write(string(name) + struct.pack("<I", len(sizes)))
            file.write(struct.pack(f"<{len(sizes)}QIQ", *sizes, kind, at))
        file.write(bytes(padded(file.tell())))
        start = file.tell()
        block = random_block()
        for number, (_, kind, _, count, at) in enumerate(descriptions):
            file.write(bytes(start + at - file.tell()))
            if kind == F32:
                file.write(struct.pack("<f", 1.0) * count)
            else:
                write_bf16(file, count, block, number)


if __name__ == "__main__":
    main()
