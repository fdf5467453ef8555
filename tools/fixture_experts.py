# SPDX-License-Identifier: Apache-2.0
"""Fixtures that are mixtures of experts: their routers, and the names of their tensors.

Which experts a token gets must not hang on the last bits of a logit, or bf16 would choose others
than the reference. So the first entries of an embedding, one for each expert, say which experts are
the token's, and routers read them; how much each expert counts depends on everything else, too.
"""

import re

import torch
from safetensors import safe_open
from safetensors.torch import save_file

# Of router logits, between the last expert that is chosen and the first that is not.
MIN_ROUTING_MARGIN = 0.5


def is_router(name):
    return name.endswith((".gate.weight", ".router.weight", ".router.layer.weight"))


def adds_to_the_stream(name):
    """Whether a layer's parameter is of the linear layer whose outputs are added to its inputs."""
    return any(part in name for part in ("o_proj", "out_proj", "down_proj", "output_linear"))


def has_outputs_last(name, model_type):
    """Of such a parameter: a bias, and gpt-oss's experts; other weights have inputs last."""
    return name.endswith("bias") or (model_type == "gpt_oss" and ".experts." in name)


@torch.no_grad()
def route_by_token(model, generator):
    """Changes random weights so that every token has experts of its own, others in each layer."""
    routers = {name: p for name, p in model.named_parameters() if is_router(name)}
    if not routers:
        return
    experts = next(iter(routers.values())).shape[0]
    embedding = model.model.embed_tokens.weight
    shape = (embedding.shape[0], experts)
    order = torch.rand(shape, generator=generator).argsort(1)
    size = 2.0 + torch.rand(shape, generator=generator)
    embedding[:, :experts] = torch.where(order < model.config.num_experts_per_tok, size, -size)
    for name, router in routers.items():
        layer = int(name.split(".")[2])
        router.mul_(0.1)
        for expert in range(experts):
            router[expert, (expert + layer) % experts] += 1.5
    # Layers add little to those entries, so that the choice stays the token's.
    for name, parameter in model.named_parameters():
        if not adds_to_the_stream(name):
            continue
        if has_outputs_last(name, model.config.model_type):
            parameter[..., :experts].mul_(0.1)
        else:
            parameter[..., :experts, :].mul_(0.1)


def watch_routing(model):
    """A list that will get, of every call of a router, the least margin of its choices."""
    margins = []
    count = getattr(model.config, "num_experts_per_tok", None)

    def watch(module, args, _):
        logits = torch.nn.functional.linear(
            args[0].reshape(-1, module.weight.shape[1]),
            module.weight,
            getattr(module, "bias", None),
        )
        top = logits.topk(count + 1).values
        margins.append((top[:, count - 1] - top[:, count]).min().item())

    for name, module in model.named_modules():
        if is_router(name + ".weight"):
            module.register_forward_hook(watch)
    return margins


def as_published(model_type, tensors):
    """{name: tensor} with the experts of transformers 5 named as published checkpoints have them."""
    published = {}
    for name, tensor in tensors.items():
        if model_type == "gpt_oss":
            published[name] = tensor
            continue
        match = re.match(
            r"(model\.layers\.\d+)\.(?:mlp|block_sparse_moe)\.(gate|router|experts)\.(\w+)$", name
        )
        if match is None:
            published[name] = tensor
            continue
        layer, part, field = match.groups()
        if model_type in ("granitemoe", "granitemoehybrid"):
            renamed = {
                "weight": "router.layer.weight",
                "gate_up_proj": "input_linear.weight",
                "down_proj": "output_linear.weight",
            }
            published[f"{layer}.block_sparse_moe.{renamed[field]}"] = tensor
            continue
        mixtral = model_type == "mixtral"
        prefix = f"{layer}.{'block_sparse_moe' if mixtral else 'mlp'}"
        if part == "gate":
            published[f"{prefix}.gate.weight"] = tensor
            continue
        for expert, weight in enumerate(tensor):
            of_expert = f"{prefix}.experts.{expert}"
            if field == "down_proj":
                published[f"{of_expert}.{'w2' if mixtral else 'down_proj'}.weight"] = weight
                continue
            gate, up = weight.chunk(2)
            published[f"{of_expert}.{'w1' if mixtral else 'gate_proj'}.weight"] = gate
            published[f"{of_expert}.{'w3' if mixtral else 'up_proj'}.weight"] = up
    return published


def as_transformers(model_type, tensors):
    """The other way, for qwen3_moe, whose published experts may be quantised one by one."""
    if model_type != "qwen3_moe":
        return tensors
    loaded, experts = {}, {}
    for name, tensor in tensors.items():
        match = re.match(r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)\.(\w+)\.weight$", name)
        if match is None:
            loaded[name] = tensor
        else:
            layer, expert, field = match.groups()
            experts.setdefault(layer, {}).setdefault(field, {})[int(expert)] = tensor
    for layer, fields in experts.items():
        stacked = {
            field: torch.stack([by_expert[expert] for expert in range(len(by_expert))])
            for field, by_expert in fields.items()
        }
        loaded[f"{layer}.gate_up_proj"] = torch.cat([stacked["gate_proj"], stacked["up_proj"]], 1)
        loaded[f"{layer}.down_proj"] = stacked["down_proj"]
    return loaded


def publish(directory, model_type):
    """Renames the tensors of model.safetensors, where it has others than published checkpoints."""
    path = directory / "model.safetensors"
    with safe_open(str(path), framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
    published = as_published(model_type, stored)
    if set(published) != set(stored):
        print(f"{directory}: experts renamed, were {sorted(set(stored) - set(published))}")
        tensors = {name: tensor.contiguous() for name, tensor in published.items()}
        save_file(tensors, str(path), metadata={"format": "pt"})
