# SPDX-License-Identifier: Apache-2.0
"""Stores the linear layers of a fixture in E4M3, with scales as published checkpoints have them, or
in 4 bits (fixture_int4.py), or gpt-oss's experts in MXFP4 (fixture_mxfp4.py).

Of E4M3, weight = element * scale, scale in f32. Reference logits come from these products in double:
weights are rounded, activations are not, unless round_activations is asked to. A layer that a
checkpoint leaves out keeps its tensor and its name.
"""

import fnmatch
import json
import re

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fixture_int4 import KINDS as INT4_KINDS
from fixture_int4 import dequantized_int4, int4_config, stored_int4
from fixture_mxfp4 import dequantized_mxfp4, is_mxfp4_matrix, mxfp4_config, stored_mxfp4

E4M3_MAX = 448.0
BLOCK = 128
ACTIVATION_SCALE_UB = 1200.0  # of fbgemm: what the largest activation of a token counts at most


def is_linear_of_a_block(name):
    return name.startswith("model.layers.") and name.endswith("_proj.weight")


def is_left_out(name, kind, left_out):
    """Whether `left_out`, as a config of such a kind says it, names the layer of a weight."""
    layer = name.removesuffix(".weight")
    for entry in left_out:
        if kind == "modelopt":  # wildcards of a shell
            found = fnmatch.fnmatchcase(layer, entry)
        elif entry.startswith("re:"):
            found = re.match(entry.removeprefix("re:"), layer) is not None
        else:
            found = layer == entry
        if found:
            return True
    return False


def is_quantised(name, kind, left_out):
    return is_linear_of_a_block(name) and not is_left_out(name, kind, left_out)


def blocks_of(size):
    return (size + BLOCK - 1) // BLOCK


def spread(scale, shape):
    """A scale of [], [1], [out, 1] or one per block, for every element of a weight."""
    if scale.numel() == 1:
        return scale.reshape(1, 1).expand(shape)
    if scale.shape[1] == 1 and scale.shape[0] == shape[0]:
        return scale.expand(shape)
    whole = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return whole[: shape[0], : shape[1]]


def scales_of(weight, kind):
    largest = weight.float().abs()
    if kind == "tensor":
        return (largest.max() / E4M3_MAX).reshape(1)
    if kind == "modelopt":
        return largest.max() / E4M3_MAX
    if kind in ("channel", "fbgemm"):
        return largest.amax(1, keepdim=True) / E4M3_MAX
    rows, columns = blocks_of(weight.shape[0]), blocks_of(weight.shape[1])
    padded = torch.zeros(rows * BLOCK, columns * BLOCK)
    padded[: weight.shape[0], : weight.shape[1]] = largest
    return padded.reshape(rows, BLOCK, columns, BLOCK).amax((1, 3)) / E4M3_MAX


def scale_name(weight_name, kind):
    return weight_name + ("_scale_inv" if kind == "block" else "_scale")


def quantization_config(kind, left_out):
    if kind in INT4_KINDS:
        config = int4_config(kind)
        if left_out:
            assert "ignore" in config
            config["ignore"] = ["lm_head", *left_out]
        return config
    if kind == "modelopt":
        number = {"dynamic": False, "num_bits": 8, "type": "float"}
        return {
            "config_groups": {
                "group_0": {"input_activations": number, "targets": ["Linear"], "weights": number}
            },
            "ignore": ["lm_head", *left_out],
            "producer": {"name": "modelopt", "version": "0.37.0"},
            "quant_algo": "FP8",
            "quant_method": "modelopt",
        }
    if kind == "fbgemm":
        return {
            "activation_scale_ub": ACTIVATION_SCALE_UB,
            "modules_to_not_convert": ["lm_head", *left_out],
            "quant_method": "fbgemm_fp8",
        }
    assert not left_out
    if kind == "mxfp4":
        return mxfp4_config()
    if kind == "block":
        return {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [BLOCK, BLOCK],
        }
    dynamic = kind == "channel"

    def scheme(strategy, is_dynamic):
        return {
            "actorder": None,
            "block_structure": None,
            "dynamic": is_dynamic,
            "group_size": None,
            "num_bits": 8,
            "observer": None if is_dynamic else "minmax",
            "observer_kwargs": {},
            "strategy": strategy,
            "symmetric": True,
            "type": "float",
        }

    return {
        "config_groups": {
            "group_0": {
                "input_activations": scheme("token" if dynamic else "tensor", dynamic),
                "output_activations": None,
                "targets": ["Linear"],
                "weights": scheme(kind, False),
            }
        },
        "format": "float-quantized",
        "global_compression_ratio": None,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def scales_beside(layer, kind):
    """{name: tensor} of what a layer's activations would be rounded by."""
    if kind == "tensor":
        return {layer + "input_scale": torch.tensor([0.03125])}
    if kind == "modelopt":
        return {layer + "input_scale": torch.tensor(0.03125)}
    if kind == "fbgemm":
        return {layer + "input_scale_ub": torch.tensor([ACTIVATION_SCALE_UB])}
    return {}


def quantize(directory, kind, configs, left_out=()):
    """Rewrites model.safetensors, and quantization_config in `configs` (paths of config files)."""
    path = directory / "model.safetensors"
    stored = {}
    with safe_open(str(path), framework="pt") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            if kind == "mxfp4":
                matrix = is_mxfp4_matrix(name)
                stored.update(stored_mxfp4(name, tensor) if matrix else {name: tensor})
                continue
            if not is_quantised(name, kind, left_out):
                stored[name] = tensor
                continue
            if kind in INT4_KINDS:
                stored.update(stored_int4(name.removesuffix("weight"), tensor, kind))
                continue
            scale = scales_of(tensor, kind)
            elements = tensor.float() / spread(scale, tensor.shape)
            stored[name] = elements.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
            stored[scale_name(name, kind)] = scale.contiguous()
            stored.update(scales_beside(name.removesuffix("weight"), kind))
    save_file(stored, str(path), metadata={"format": "pt"})
    for config in configs:
        fields = json.loads(config.read_text())
        fields["quantization_config"] = quantization_config(kind, left_out)
        config.write_text(json.dumps(fields, indent=2) + "\n")


def rounded(x):
    """x as numbers of E4M3 times a scale for each token, f32, that makes its largest one 448."""
    scale = (x.abs().amax(-1, keepdim=True).float() / E4M3_MAX).clamp(min=2.0**-100)
    return (x / scale).float().to(torch.float8_e4m3fn).to(x.dtype) * scale.to(x.dtype)


def round_activations(model):
    """From here on the linear layers of the model's blocks round what they read."""
    for name, module in model.named_modules():
        if is_linear_of_a_block(name + ".weight"):
            module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]),))


def dequantized(tensors, kind, left_out=()):
    """{name: values in double} of the checkpoint's tensors, without scales."""
    if kind in INT4_KINDS:
        return dequantized_int4(tensors, kind)
    if kind == "mxfp4":
        return dequantized_mxfp4(tensors)
    values = {}
    for name, tensor in tensors.items():
        if name.endswith(("_scale", "_scale_inv", "_scale_ub")):
            continue
        values[name] = tensor.to(torch.float32).double()
        if is_quantised(name, kind, left_out):
            assert tensor.dtype == torch.float8_e4m3fn
            scale = tensors[scale_name(name, kind)].double()
            values[name] = values[name] * spread(scale, tensor.shape)
    return values
