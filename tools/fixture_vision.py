# SPDX-License-Identifier: Apache-2.0
"""Fixtures with a vision part: the names of their tensors.

Such a model runs here on text alone, so its vision part is in the files and is compared with
nothing. Two namings are met. Published checkpoints, which are those of transformers 4.50, have
language_model.model.*, language_model.lm_head.weight, vision_tower.*, multi_modal_projector.*; the
modules of transformers 5 are model.language_model.*, lm_head.weight, model.vision_tower.*,
model.multi_modal_projector.*. What save_pretrained writes depends on its release, so that
name_tensors renames from any of these.
"""

import re

from safetensors import safe_open
from safetensors.torch import save_file

PUBLISHED = "published"
MODULES = "modules of transformers 5"

# {naming: {part: prefix}}
PREFIXES = {
    PUBLISHED: {
        "text": "language_model.model.",
        "head": "language_model.lm_head.",
        "vision_tower": "vision_tower.",
        "multi_modal_projector": "multi_modal_projector.",
    },
    MODULES: {
        "text": "model.language_model.",
        "head": "lm_head.",
        "vision_tower": "model.vision_tower.",
        "multi_modal_projector": "model.multi_modal_projector.",
    },
}


def part_of(name):
    """(part, rest of the name) of a tensor's name, in whichever naming."""
    match = re.match(
        r"(?:model\.)?(language_model\.lm_head|lm_head|language_model\.model|language_model|"
        r"vision_tower|multi_modal_projector)\.(.+)$",
        name,
    )
    if match is None:
        raise SystemExit(f"{name}: of no part of a model with a vision part")
    part, rest = match.groups()
    if part.endswith("lm_head"):
        return "head", rest
    return ("text" if part.startswith("language_model") else part), rest


def text_tensors(tensors):
    """{name: tensor} of the text part, named as in a model of text alone."""
    text = {}
    for name, tensor in tensors.items():
        part, rest = part_of(name)
        if part in ("text", "head"):
            text[("model." if part == "text" else "lm_head.") + rest] = tensor
    if not text or len(text) == len(tensors):
        raise SystemExit(f"wanted a text part and a vision part, got {sorted(tensors)}")
    return text


def name_tensors(directory, naming):
    """Renames the tensors of model.safetensors, where it has others than `naming` says."""
    path = directory / "model.safetensors"
    with safe_open(str(path), framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
    named = {}
    for name, tensor in stored.items():
        part, rest = part_of(name)
        named[PREFIXES[naming][part] + rest] = tensor.contiguous()
    if set(named) != set(stored):
        print(f"{directory}: tensors renamed, were {sorted(set(stored) - set(named))}")
        save_file(named, str(path), metadata={"format": "pt"})
