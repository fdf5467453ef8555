# SPDX-License-Identifier: Apache-2.0
"""Stores gpt-oss's experts in MXFP4, as it is published: for each output, elements of E2M1 and for
every 32 inputs the exponent of a power of two (OCP Microscaling Formats, version 1.0).
"""

import torch

GROUP = 32
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
LARGEST_EXPONENT = 2  # of 6
EXPONENT_BIAS = 127


def is_mxfp4_matrix(name):
    return name.endswith((".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"))


def mxfp4_config():
    return {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    }


def stored_mxfp4(name, tensor):
    """{name: tensor} of [experts, inputs, outputs]."""
    groups = tensor.float().transpose(1, 2).unflatten(2, (-1, GROUP))
    exponents = groups.abs().amax(-1).log2().floor() - LARGEST_EXPONENT
    scaled = groups / exponents.exp2().unsqueeze(-1)
    codes = (scaled.abs().unsqueeze(-1) - MAGNITUDES).abs().argmin(-1)
    codes = codes + 8 * (scaled < 0)
    blocks = codes[..., 0::2] + 16 * codes[..., 1::2]
    return {
        f"{name}_blocks": blocks.to(torch.uint8).contiguous(),
        f"{name}_scales": (exponents + EXPONENT_BIAS).to(torch.uint8).contiguous(),
    }


def dequantized_mxfp4(tensors):
    """{name: values in double} of the checkpoint's tensors, experts as transformers has them."""
    values = {}
    for name, tensor in tensors.items():
        if name.endswith("_scales"):
            continue
        if not name.endswith("_blocks"):
            values[name] = tensor.double()
            continue
        name = name.removesuffix("_blocks")
        codes = torch.stack([tensor % 16, tensor // 16], -1).flatten(-2).long()
        elements = MAGNITUDES.double()[codes % 8] * torch.where(codes < 8, 1.0, -1.0)
        exponents = tensors[f"{name}_scales"].double() - EXPONENT_BIAS
        groups = elements * exponents.exp2().unsqueeze(-1)
        values[name] = groups.flatten(2).transpose(1, 2).contiguous()
    return values
