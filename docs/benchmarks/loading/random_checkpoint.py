#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of the shape of Llama-3.1-8B with weights at random, for timing how it loads.

usage: random_checkpoint.py DIRECTORY bf16|fp8|awq|gptq|compressed-tensors [LAYERS=12]

Four files. Linear layers are bf16, E4M3 with a scale for 128 x 128 elements, or 4 bits in groups of
128; all else is bf16. A block of random bytes repeats, from another place in every tensor. Needs
nothing but Python.
"""

import json
import os
import struct
import sys

FORMS = ("bf16", "fp8", "awq", "gptq", "compressed-tensors")
if len(sys.argv) not in (3, 4) or sys.argv[2] not in FORMS:
    sys.exit(__doc__)
DIRECTORY, FORM = sys.argv[1:3]
LAYERS = int(sys.argv[3]) if len(sys.argv) > 3 else 12
HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, FEED_FORWARD, VOCABULARY = 4096, 32, 8, 128, 14336, 128256
FILES, GROUP = 4, 128
SIZES = {"BF16": 2, "F16": 2, "F8_E4M3": 1, "I32": 4, "I64": 8}
QUANTIZATION = {
    "bf16": None,
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
            "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False,
             "desc_act": False},
    "compressed-tensors": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
            "group_size": GROUP}}},
        "ignore": ["lm_head"]},
}
# A byte of every element: the upper one of 16 bits, an exponent of 2^-7 or 2^-6 and no NaN; of E4M3
# no NaN; zero points that GPTQ's offset leaves below 16.
UPPER = bytes((0x3C, 0xBC)[i & 1] for i in range(256))
FINITE = bytes(i & 0xBF for i in range(256))
SEVENS = bytes(i & 0x77 for i in range(256))


def linear(name, outputs, inputs):
    """Name, dtype, shape and contents of a layer's tensors."""
    if FORM == "bf16":
        yield f"{name}.weight", "BF16", (outputs, inputs), "bf16"
    elif FORM == "fp8":
        yield f"{name}.weight", "F8_E4M3", (outputs, inputs), "finite"
        yield f"{name}.weight_scale_inv", "BF16", (outputs // 128, inputs // 128), "ones"
    elif FORM == "compressed-tensors":
        yield f"{name}.weight_packed", "I32", (outputs, inputs // 8), "bytes"
        yield f"{name}.weight_scale", "BF16", (outputs, inputs // GROUP), "ones"
        yield f"{name}.weight_shape", "I64", (2,), struct.pack("<qq", outputs, inputs)
    else:
        words = (inputs, outputs // 8) if FORM == "awq" else (inputs // 8, outputs)
        yield f"{name}.qweight", "I32", words, "bytes"
        yield f"{name}.qzeros", "I32", (inputs // GROUP, outputs // 8), "sevens"
        yield f"{name}.scales", "BF16", (inputs // GROUP, outputs), "ones"


def tensors():
    yield "model.embed_tokens.weight", "BF16", (VOCABULARY, HIDDEN), "bf16"
    yield "lm_head.weight", "BF16", (VOCABULARY, HIDDEN), "bf16"
    yield "model.norm.weight", "BF16", (HIDDEN,), "ones"
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        yield f"{at}.input_layernorm.weight", "BF16", (HIDDEN,), "ones"
        yield f"{at}.post_attention_layernorm.weight", "BF16", (HIDDEN,), "ones"
        yield from linear(f"{at}.self_attn.q_proj", HEADS * HEAD_SIZE, HIDDEN)
        yield from linear(f"{at}.self_attn.k_proj", KV_HEADS * HEAD_SIZE, HIDDEN)
        yield from linear(f"{at}.self_attn.v_proj", KV_HEADS * HEAD_SIZE, HIDDEN)
        yield from linear(f"{at}.self_attn.o_proj", HIDDEN, HEADS * HEAD_SIZE)
        yield from linear(f"{at}.mlp.gate_proj", FEED_FORWARD, HIDDEN)
        yield from linear(f"{at}.mlp.up_proj", FEED_FORWARD, HIDDEN)
        yield from linear(f"{at}.mlp.down_proj", HIDDEN, FEED_FORWARD)


def bytes_of(tensor):
    _, dtype, shape, _ = tensor
    count = SIZES[dtype]
    for size in shape:
        count *= size
    return count


def write(path, some, blocks, number):
    header, offset = {}, 0
    for tensor in some:
        name, dtype, shape, _ = tensor
        end = offset + bytes_of(tensor)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in some:
            contents, left = tensor[3], bytes_of(tensor)
            if isinstance(contents, bytes):
                file.write(contents)
                continue
            block, number = blocks[contents], number + 1
            start = number * 7919 * 8 % len(block)
            while left > 0:
                part = block[start : start + left]
                file.write(part)
                left, start = left - len(part), 0


def main():
    os.makedirs(DIRECTORY, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }
    if QUANTIZATION[FORM] is not None:
        config["quantization_config"] = QUANTIZATION[FORM]
    with open(f"{DIRECTORY}/config.json", "w") as file:
        json.dump(config, file, indent=1)
    random = os.urandom(1 << 26)
    halves = bytearray(random)
    halves[1::2] = halves[1::2].translate(UPPER)
    blocks = {
        "bytes": memoryview(random),
        "bf16": memoryview(halves),
        "finite": memoryview(random.translate(FINITE)),
        "sevens": memoryview(random.translate(SEVENS)),
        "ones": memoryview(b"\x80\x3f" * (1 << 20)),
    }
    everything = list(tensors())
    weight_map, total = {}, 0
    for i in range(FILES):
        name = f"model-{i + 1:05}-of-{FILES:05}.safetensors"
        some = everything[i * len(everything) // FILES : (i + 1) * len(everything) // FILES]
        write(f"{DIRECTORY}/{name}", some, blocks, i * 1000)
        weight_map.update({tensor[0]: name for tensor in some})
        total += sum(map(bytes_of, some))
    with open(f"{DIRECTORY}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file)


if __name__ == "__main__":
    main()
