#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a file of reference logits of a model directory with Hugging Face transformers, for
`reprise check MODEL_DIR --reference FILE`.

transformers reads the very directory, and runs it on the CPU without a KV cache, prompts of random
tokens each from its beginning. docs/models.md says what the file has.

    python3 tools/make_reference.py --model MODEL_DIR --out reference.json
    python3 tools/make_reference.py --model MODEL_DIR --out reference.json --dtype float64

Writes FILE.json, and its tensors to FILE.safetensors. Needs torch, transformers 5 and safetensors;
no GPU. Memory: the parameters in the chosen type, and then some.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="Hugging Face directory with config.json"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the file to write, such as reference.json"
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "float64"],
        default="float32",
        help="of the arithmetic, whatever the checkpoint has (default float32)",
    )
    parser.add_argument("--seed", type=int, default=20, help="seed of the prompts (default 20)")
    args = parser.parse_args()
    if args.out.suffix != ".json":
        parser.error(f"--out: got {str(args.out)!r}, allowed: a name that ends in .json")
    if not (args.model / "config.json").is_file():
        parser.error(f"--model: got {str(args.model)!r}, allowed: a directory with config.json")
    if not args.out.parent.is_dir():
        parser.error(f"--out: got {str(args.out)!r}, allowed: a file in a directory that exists")
    return args


def main():
    args = parse_args()
    # Behind the arguments, which are wrong sooner than these are there.
    import torch
    import transformers
    from safetensors.torch import save_file

    from make_fixtures import make_reference, write_json

    dtype = getattr(torch, args.dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(args.model), dtype=dtype, attn_implementation="eager"
    )
    model.eval()
    generator = torch.Generator().manual_seed(args.seed)
    entries, tensors, rows = make_reference(model, model.config.vocab_size, generator)
    if not torch.isfinite(rows).all():
        raise SystemExit(f"{args.model}: a logit is not finite")
    save_file(tensors, str(args.out.with_suffix(".safetensors")))
    about = {
        "model": json.loads((args.model / "config.json").read_text()).get("architectures"),
        "made_by": "tools/make_reference.py",
        "seed": args.seed,
        "dtype": args.dtype,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    write_json(
        args.out, {"about": about, "vocab_size": model.config.vocab_size, "prompts": entries}
    )
    positions = sum(entry["num_positions"] for entry in entries)
    print(f"{args.out}: {len(entries)} prompts, logits of {positions} positions")


if __name__ == "__main__":
    main()
