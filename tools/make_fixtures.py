# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures: tiny random models with reference logits and greedy continuations from
Hugging Face transformers.

Each model (fixture_models.py says which) is saved, loaded again by transformers from the very
directory that the tests will read, and run from there, so the fixtures also show that the
directories are valid. Tests read them; nothing at run time does. Every reference.json explains
itself.

    python3 tools/make_fixtures.py --out tests/fixtures
    python3 tools/make_fixtures.py --out tests/fixtures --only qwen2-tiny qwen3-tiny

With int4-gptq-tiny comes int4-act-order-tiny, which is made of it (fixture_act_order.py).

Needs torch, transformers 5 and safetensors (made with 2.11, 5.17 and 0.8); no GPU. The same --seed
gives the same bits with the same versions on the same kind of CPU.
"""

import argparse
import copy
import json
import os
import re
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import fixture_act_order
from fixture_experts import (
    MIN_ROUTING_MARGIN,
    as_published,
    as_transformers,
    publish,
    route_by_token,
    watch_routing,
)
from fixture_models import FIXTURES
from fixture_quantization import dequantized, quantize, round_activations
from fixture_vision import name_tensors, text_tensors

MAX_TOTAL_BYTES = 4_200_000
PROMPT_LENGTHS = [1, 7, 33, 70]
ALL_POSITIONS_UP_TO = 8  # longer prompts keep the logits of their last 8 positions
GREEDY_TOKENS = 24
FIRST_PLAIN_TOKEN = 3  # prompts use no bos or eos
# Of fixtures that round activations. A number that f32 rounds to the E4M3 above and float64 to that
# below shows in all that follows.
MAX_ROUNDED_F32_DIFFERENCE = 1e-3


def parse_args(names):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder that gets one directory per model, e.g. tests/fixtures",
    )
    parser.add_argument(
        "--seed", type=int, default=20, help="seed of weights and prompts (default 20)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"make these alone: {', '.join(names)} (default: all)",
    )
    return parser.parse_args()


@torch.no_grad()
def randomise(model, generator):
    """Random weights that make attention uneven and logits spread: no zeros, no norm at 1."""
    config = model.config.get_text_config()
    # Filled by name, so that the bits do not depend on the order in which a release registers its
    # modules.
    for name, parameter in sorted(model.named_parameters()):
        shape = parameter.shape
        if parameter.ndim == 1 or name.endswith("bias"):
            around, reach = vector_range(name, config.model_type)
            parameter.copy_(around + reach * (2.0 * torch.rand(shape, generator=generator) - 1.0))
            continue
        if "embed_tokens" in name:
            std = 0.25 if config.tie_word_embeddings else 0.5
            if config.model_type.startswith("gemma"):
                std = 0.06  # multiplied by the root of hidden_size; more would repeat the last token
        elif "lm_head" in name:
            std = 2.0 / shape[1] ** 0.5
        else:
            std = (1.5 if "q_proj" in name or "k_proj" in name else 1.2) / shape[-1] ** 0.5
        parameter.copy_(std * torch.randn(shape, generator=generator))
    route_by_token(model, generator)


def vector_range(name, model_type):
    """(around, reach): the values of a vector, as of a norm or bias, lie in around +- reach,
    uniformly.
    """
    if name.endswith(("A_log", "dt_bias", "sinks")):
        return {"A_log": (0.0, 1.0), "dt_bias": (-1.0, 1.0), "sinks": (0.5, 1.5)}[
            name.rpartition(".")[2]
        ]
    if name.endswith("bias"):
        return (0.0, 0.6) if model_type == "qwen2" else (0.0, 0.1)
    gemma = model_type.startswith("gemma")  # whose norms multiply by 1 + weight
    if gemma and name in ("model.norm.weight", "model.language_model.norm.weight"):
        return (3.0, 0.2)  # the tied embedding's values are small
    if name.endswith("q_norm.weight") or name.endswith("k_norm.weight"):
        return (0.5 if gemma else 1.5, 0.4)  # a normed q and k alone would attend nearly evenly
    return (0.0 if gemma else 1.0, 0.2)


def save_checkpoint(fixture, generator, directory):
    """Writes config.json, generation_config.json and the weights."""
    model = fixture.model_class(fixture.config)
    randomise(model, generator)
    model.to(dtype=fixture.dtype)
    model.save_pretrained(str(directory))
    publish(directory, model.config.model_type)
    if fixture.tensor_names:
        name_tensors(directory, fixture.tensor_names)
    dtype_name = str(fixture.dtype).removeprefix("torch.")
    config = json.loads((directory / "config.json").read_text())
    if config.get("dtype") != dtype_name or config.get("architectures") != [
        fixture.model_class.__name__
    ]:
        raise SystemExit(
            f"{directory}/config.json: dtype {config.get('dtype')!r}, architectures "
            f"{config.get('architectures')!r}, wanted {dtype_name!r}, "
            f"[{fixture.model_class.__name__!r}]"
        )
    if fixture.shards > 1:
        shard(directory, fixture.shards)
    if fixture.transformers4_dialect:
        (directory / "config.json").rename(directory / "config_transformers5.json")
        config = to_transformers4(config)
        config.get("text_config", config).update(fixture.transformers4_fields)
        write_json(directory / "config.json", config)
    if fixture.quantization:
        quantize(
            directory,
            fixture.quantization,
            sorted(directory.glob("config*.json")),
            fixture.left_out,
        )


def rope_to_transformers4(config):
    """Puts the fields of rope_parameters where transformers 4 has them."""
    rope = dict(config.pop("rope_parameters"))
    if "full_attention" in rope:  # gemma3_text
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    config["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] == "longrope":
        # As Phi-3 and Phi-4 are published; the original context stands beside it already.
        rope.pop("original_max_position_embeddings", None)
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        rope["type"] = rope.pop("rope_type")
        config["rope_scaling"] = rope
    else:
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None


def to_transformers4(config):
    """The same config as transformers 4 wrote it: rope_theta and rope_scaling apart, torch_dtype,
    no unset token ids and no list of layer types."""
    config = {
        key: value
        for key, value in config.items()
        if not (key.endswith("_token_id") and value is None)
        and key not in ("layer_types", "_sliding_window_pattern")
    }
    if "text_config" in config:  # the rope is in there, the type of the weights may be
        config["text_config"] = to_transformers4(config["text_config"])
    else:
        rope_to_transformers4(config)
    if config["model_type"] == "qwen3_moe" and "num_local_experts" in config:
        config["num_experts"] = config.pop("num_local_experts")
    dtype = config.pop("dtype", None)
    if dtype is not None:
        config["torch_dtype"] = dtype
    if "transformers_version" in config:
        config["transformers_version"] = "4.46.0"
    return dict(sorted(config.items()))


def read_tensors(path):
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def shard(directory, count):
    """Splits model.safetensors into `count` files of about the same number of tensors, with an
    index.
    """
    single = directory / "model.safetensors"
    tensors = read_tensors(single)
    names = sorted(tensors)
    weight_map = {}
    for index in range(count):
        part = names[index * len(names) // count : (index + 1) * len(names) // count]
        file_name = f"model-{index + 1:05d}-of-{count:05d}.safetensors"
        save_file(
            {name: tensors[name].contiguous() for name in part},
            str(directory / file_name),
            metadata={"format": "pt"},
        )
        weight_map.update({name: file_name for name in part})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_json(
        directory / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )
    single.unlink()


def load_in_double(fixture, directory):
    """transformers' own reading of the directory, weights upcast to float64 (exact from every
    checkpoint dtype). A quantised one is read here, and given to transformers in float64.
    """
    if fixture.quantization:
        model = fixture.model_class(fixture.config).to(dtype=torch.float64)
        values = dequantized(
            read_tensors(directory / "model.safetensors"), fixture.quantization, fixture.left_out
        )
        values = as_transformers(model.config.model_type, values)
        missing, unexpected = model.load_state_dict(values, strict=False)
        tied = ["lm_head.weight"] if fixture.config.tie_word_embeddings else []
        if unexpected or missing != tied:
            raise SystemExit(f"{directory}: tensors missing {missing}, unexpected {unexpected}")
        model.tie_weights()
        model.eval()
        model.set_attn_implementation("eager")
        model.set_experts_implementation("eager")
        if fixture.rounds_activations:
            round_activations(model)
        return model
    model = fixture.model_class.from_pretrained(
        str(directory), dtype=torch.float32, attn_implementation="eager"
    )
    if fixture.tensor_names is None:  # beside a vision part there are no experts
        model.set_experts_implementation("eager")  # others do not compute in double
    model.eval()
    check_loaded(fixture, model, directory)
    if fixture.long_factors_alone:
        take_long_factors(model)
    return model.to(dtype=torch.float64)


def take_long_factors(model):
    """Gives the loaded model longrope's long factors at every length. transformers takes the short
    ones as long as a sequence is no longer than the original context; an engine has one choice.
    """
    config = copy.deepcopy(model.config)
    config.rope_parameters["short_factor"] = config.rope_parameters["long_factor"]
    published = model.model.rotary_emb
    model.model.rotary_emb = type(published)(config=config)
    if torch.equal(model.model.rotary_emb.inv_freq, published.inv_freq):
        raise SystemExit("short and long factors give the same frequencies")


def check_loaded(fixture, model, directory):
    """The loaded model has exactly the stored values, and reads the rope parameters that were asked
    for.
    """
    stored = {}
    for path in sorted(directory.glob("model*.safetensors")):
        stored.update(read_tensors(path))
    state = as_published(model.config.model_type, model.state_dict())
    if fixture.tensor_names:
        stored, state = text_tensors(stored), text_tensors(state)
    tied = {"lm_head.weight"} if fixture.text_config.tie_word_embeddings else set()
    expected = set(state) - tied
    if set(stored) != expected:
        raise SystemExit(
            f"{directory}: tensors stored and expected differ: {sorted(set(stored) ^ expected)}"
        )
    for name, tensor in stored.items():
        if tensor.dtype != fixture.dtype:
            raise SystemExit(
                f"{directory}: {name} is stored as {tensor.dtype}, wanted {fixture.dtype}"
            )
        if not torch.equal(state[name], tensor.to(torch.float32)):
            raise SystemExit(f"{directory}: {name} was loaded with other values than stored")
    if fixture.text_config.tie_word_embeddings and not torch.equal(
        state["lm_head.weight"], state["model.embed_tokens.weight"]
    ):
        raise SystemExit(f"{directory}: tied, but lm_head was not loaded from the embedding")
    loaded_rope = model.config.get_text_config().rope_parameters
    for key, value in (fixture.text_config.rope_parameters or {}).items():
        if loaded_rope.get(key) != value:
            raise SystemExit(
                f"{directory}: rope {key} was loaded as {loaded_rope.get(key)!r}, wanted {value!r}"
            )


@torch.no_grad()
def logits_of(model, tokens):
    """[len(tokens), vocab] logits in the model's dtype, computed from scratch (no cache)."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def greedy_continuation(model, prompt):
    """Returns (tokens, margins, logits [1, vocab] of the last step). Never stops early."""
    tokens, chosen, margins, row = list(prompt), [], [], None
    for _ in range(GREEDY_TOKENS):
        row = logits_of(model, tokens)[-1]
        top = torch.topk(row, 2)
        chosen.append(int(top.indices[0]))
        margins.append(float(f"{(top.values[0] - top.values[1]).item():.9g}"))
        tokens.append(chosen[-1])
    return chosen, margins, row[None]


def make_reference(model, vocab_size, generator):
    """Runs every prompt. Returns (prompt entries for the JSON, tensors, all kept rows in float64).
    """
    entries, tensors, rows = [], {}, []
    for index, length in enumerate(PROMPT_LENGTHS):
        prompt = torch.randint(
            FIRST_PLAIN_TOKEN, vocab_size, (length,), generator=generator
        ).tolist()
        first = 0 if length <= ALL_POSITIONS_UP_TO else length - 8
        kept = logits_of(model, prompt)[first:]
        chosen, margins, last_row = greedy_continuation(model, prompt)
        names = {
            "logits": f"prompt_{index}.logits",
            "last_step_logits": f"prompt_{index}.last_step_logits",
        }
        tensors[names["logits"]] = kept.to(torch.float32).contiguous()
        tensors[names["last_step_logits"]] = last_row.to(torch.float32).contiguous()
        rows.append(kept)
        entries.append(
            {
                "tokens": prompt,
                "logits": names["logits"],
                "first_position": first,
                "num_positions": length - first,
                "greedy_tokens": chosen,
                "greedy_margins": margins,
                "last_step_logits": names["last_step_logits"],
            }
        )
    return entries, tensors, torch.cat(rows)


def largest_f32_difference(model, entries, rows_in_double):
    """How far transformers' own f32 forward is from the reference: the noise that no comparison can
    go below.
    """
    single = model.to(dtype=torch.float32)
    rows = [logits_of(single, entry["tokens"])[entry["first_position"] :] for entry in entries]
    return (torch.cat(rows).double() - rows_in_double).abs().max().item()


def describe(fixture, entries, rows, f32_difference, seed):
    return {
        "about": {
            "model": fixture.what,
            "made_by": f"python3 tools/make_fixtures.py --out tests/fixtures --seed {seed}",
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "seed": seed,
            "arithmetic": ("linear layers of blocks read numbers of E4M3 times a scale for each "
            "token: " if fixture.rounds_activations else "")
            + "transformers, attn_implementation eager, CPU, no KV cache: the "
            "checkpoint's weights upcast to float64 and "
            "run in float64; inside, transformers computes RMSNorm, softmax and rope angles in "
            "float32 whatever "
            "the model's dtype. Results rounded to float32 once.",
            "schema": {
                "prompts[].tokens": "token ids of the prompt; position 0 is the first",
                "prompts[].logits": "tensor in reference.safetensors, f32 [num_positions, "
                "vocab_size]: row r is the output at "
                "position first_position + r",
                "prompts[].greedy_tokens": "argmax continuation of the prompt; it does not stop at "
                "eos",
                "prompts[].greedy_margins": "per greedy token: largest logit minus second largest, "
                "at the step that chose it",
                "prompts[].last_step_logits": "tensor, f32 [1, vocab_size]: the output that chose "
                "the last greedy token, that is "
                "after the prompt and all greedy tokens but the last",
                "logits_abs_max": "largest magnitude among the rows of prompts[].logits",
                "logits_std": "standard deviation of all values in prompts[].logits",
                "f32_abs_difference_max": "largest difference between prompts[].logits and "
                "transformers' forward in float32",
            },
        },
        "vocab_size": fixture.text_config.vocab_size,
        "logits_abs_max": float(f"{rows.abs().max().item():.9g}"),
        "logits_std": float(f"{rows.std().item():.9g}"),
        "f32_abs_difference_max": float(f"{f32_difference:.3g}"),
        "prompts": entries,
    }


def write_json(path, value):
    """Indented, with lists of numbers on one line."""
    text = json.dumps(value, indent=2)
    text = re.sub(
        r"\[[\s\d.,e+-]+\]", lambda match: "[" + " ".join(match[0][1:-1].split()) + "]", text
    )
    path.write_text(text + "\n")


def make_fixture(fixture, index, seed, out):
    directory = out / fixture.name
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed + index)
    save_checkpoint(fixture, generator, directory)
    model = load_in_double(fixture, directory)
    routing_margins = watch_routing(model)
    entries, tensors, rows = make_reference(model, fixture.text_config.vocab_size, generator)
    if not torch.isfinite(rows).all():
        raise SystemExit(f"{fixture.name}: a reference logit is not finite")
    if routing_margins:
        margin = min(routing_margins)
        print(f"{fixture.name}: experts are chosen by at least {margin:.3f} of a router's logits")
        if margin < MIN_ROUTING_MARGIN:
            raise SystemExit(f"{fixture.name}: wanted at least {MIN_ROUTING_MARGIN}")
    difference = largest_f32_difference(model, entries, rows)
    if fixture.rounds_activations and difference > MAX_ROUNDED_F32_DIFFERENCE:
        raise SystemExit(
            f"{fixture.name}: f32 differs by {difference:.2e}, allowed at most "
            f"{MAX_ROUNDED_F32_DIFFERENCE}: a number is rounded the other way; try other seeds"
        )
    save_file(tensors, str(directory / "reference.safetensors"))
    write_json(directory / "reference.json", describe(fixture, entries, rows, difference, seed))
    return report(fixture, directory, entries, rows, difference)


def report(fixture, directory, entries, rows, difference):
    """Prints one paragraph to look at. Returns the directory's bytes."""
    size = sum(path.stat().st_size for path in directory.iterdir())
    margins = sorted(margin for entry in entries for margin in entry["greedy_margins"])
    distinct = [len(set(entry["greedy_tokens"])) for entry in entries]
    print(
        f"{fixture.name}: {size} bytes; logits std {rows.std().item():.3f}, max |x| "
        f"{rows.abs().max().item():.3f}, "
        f"f32 differs by {difference:.2e}; greedy margins min {margins[0]:.4f}, median "
        f"{margins[len(margins) // 2]:.4f}; "
        f"distinct greedy tokens per prompt {distinct}"
    )
    for path in sorted(directory.iterdir()):
        print(f"    {path.stat().st_size:8d}  {path.name}")
    return size


def main():
    fixtures = [make() for make in FIXTURES]
    args = parse_args([fixture.name for fixture in fixtures])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # The index, and with it the seed, is the fixture's own, whichever others are made.
    total = sum(
        make_fixture(
            fixture,
            index if fixture.seed_place is None else fixture.seed_place,
            args.seed,
            args.out,
        )
        for index, fixture in enumerate(fixtures)
        if fixture.name in args.only
    )
    if fixture_act_order.SOURCE in args.only:
        fixture_act_order.make(args.out, args.out)
    print(f"total {total} bytes")
    if total > MAX_TOTAL_BYTES:
        raise SystemExit(f"fixtures: {total} bytes, allowed: at most {MAX_TOTAL_BYTES}")


if __name__ == "__main__":
    main()
