# SPDX-License-Identifier: Apache-2.0
"""Stores the linear layers of a fixture in 4 bits, as GPTQ (v1), AWQ (gemm) and compressed-tensors
(pack-quantized) publish them.

Weight = (element - zero point) * scale, one of each for some neighbouring inputs of an output.
Elements and zero points are 0 to 15, eight to a word, the first in its lowest bits.
"""

import torch

BITS = 4
LARGEST = 15
MIDDLE = 8  # the zero point of what is symmetric
OF_WORD = 8
# Of eight outputs, those that follow each other in a word of AWQ.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]

# Method, inputs of a scale, symmetric.
KINDS = {
    "gptq": (32, True),
    "awq": (32, False),
    "pack-quantized": (64, False),
}


def pack(values, dim, order=None):
    """int32 words of eight neighbours each along `dim`."""
    values = values.to(torch.int64).movedim(dim, -1)
    values = values.reshape(*values.shape[:-1], -1, OF_WORD)
    if order:
        values = values[..., order]
    words = torch.zeros(values.shape[:-1], dtype=torch.int64)
    for index in range(OF_WORD):
        words |= values[..., index] << (BITS * index)
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).movedim(-1, dim).contiguous()


def unpack(words, dim, order=None):
    """The inverse: int64 values, 0 to 15."""
    words = words.to(torch.int64).movedim(dim, -1)
    values = torch.stack([(words >> (BITS * index)) & LARGEST for index in range(OF_WORD)], -1)
    if order:
        values = values[..., [order.index(place) for place in range(OF_WORD)]]
    return values.reshape(*values.shape[:-2], -1).movedim(-1, dim).contiguous()


def rounded(weight, group, symmetric, scale_dtype):
    """elements [outputs, inputs], zero points and scales [outputs, groups] of a weight."""
    outputs, inputs = weight.shape
    parts = weight.float().reshape(outputs, inputs // group, group)
    if symmetric:
        scales = (parts.abs().amax(2) / (MIDDLE - 1)).to(scale_dtype)
        zeros = torch.full(scales.shape, MIDDLE)
    else:
        low, high = parts.amin(2).clamp(max=0.0), parts.amax(2).clamp(min=0.0)
        scales = ((high - low) / LARGEST).to(scale_dtype)
        zeros = torch.round(-low / scales.float()).clamp(0, LARGEST).to(torch.int64)
    elements = torch.round(parts / scales.float()[..., None]) + zeros[..., None]
    elements = elements.clamp(0, LARGEST).to(torch.int64).reshape(outputs, inputs)
    return elements, zeros, scales


def stored_int4(layer, weight, kind):
    """{name: tensor} of a linear layer."""
    group, symmetric = KINDS[kind]
    if kind == "pack-quantized":
        elements, zeros, scales = rounded(weight, group, symmetric, torch.bfloat16)
        return {
            layer + "weight_packed": pack(elements, 1),
            layer + "weight_scale": scales.contiguous(),
            layer + "weight_zero_point": pack(zeros, 0),
            layer + "weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
        }
    elements, zeros, scales = rounded(weight, group, symmetric, torch.float16)
    elements, zeros, scales = elements.t(), zeros.t(), scales.t().contiguous()
    if kind == "awq":
        return {
            layer + "qweight": pack(elements, 1, AWQ_ORDER),
            layer + "qzeros": pack(zeros, 1, AWQ_ORDER),
            layer + "scales": scales,
        }
    return {
        layer + "qweight": pack(elements, 0),
        layer + "qzeros": pack(zeros - 1, 1),  # version 1 stores one less
        layer + "scales": scales,
        layer + "g_idx": (torch.arange(weight.shape[1]) // group).to(torch.int32),
    }


def dequantized_int4(tensors, kind):
    """{name: values in double} of the checkpoint's tensors, one for each weight."""
    group = KINDS[kind][0]
    first = "weight_packed" if kind == "pack-quantized" else "qweight"
    parts = ("weight_scale", "weight_zero_point", "weight_shape", "qzeros", "scales", "g_idx")
    values = {}
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        layer += "."
        if part == "weight_packed":
            elements, zeros = unpack(tensor, 1), unpack(tensors[layer + "weight_zero_point"], 0)
            scales = tensors[layer + "weight_scale"]
        elif part == "qweight":
            order = AWQ_ORDER if kind == "awq" else None
            elements = unpack(tensor, 1 if kind == "awq" else 0, order).t()
            zeros = unpack(tensors[layer + "qzeros"], 1, order).t() + (0 if kind == "awq" else 1)
            scales = tensors[layer + "scales"].t()
        elif part in parts:
            continue
        else:
            values[name] = tensor.to(torch.float32).double()
            continue
        assert part == first
        zeros, scales = (x.repeat_interleave(group, 1) for x in (zeros, scales.double()))
        values[layer + "weight"] = (elements - zeros).double() * scales
    return values


def int4_config(kind):
    group, symmetric = KINDS[kind]
    if kind == "gptq":
        return {
            "bits": BITS,
            "checkpoint_format": "gptq",
            "damp_percent": 0.1,
            "desc_act": False,
            "group_size": group,
            "lm_head": False,
            "quant_method": "gptq",
            "static_groups": False,
            "sym": symmetric,
            "true_sequential": True,
        }
    if kind == "awq":
        return {
            "backend": "autoawq",
            "bits": BITS,
            "do_fuse": False,
            "exllama_config": None,
            "fuse_max_seq_len": None,
            "group_size": group,
            "modules_to_fuse": None,
            "modules_to_not_convert": None,
            "quant_method": "awq",
            "version": "gemm",
            "zero_point": not symmetric,
        }
    return {
        "config_groups": {
            "group_0": {
                "input_activations": None,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": {
                    "actorder": None,
                    "block_structure": None,
                    "dynamic": False,
                    "group_size": group,
                    "num_bits": BITS,
                    "observer": "minmax",
                    "observer_kwargs": {},
                    "strategy": "group",
                    "symmetric": symmetric,
                    "type": "int",
                },
            }
        },
        "format": "pack-quantized",
        "global_compression_ratio": None,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }
