# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level Llama that the repository ships and writes it as a Hugging Face directory.

Token ids 0..255 are bytes, 256 is the document boundary (both bos and eos), the rest of the
vocabulary is unused padding. The text is a handful of plain files, small enough that the model
learns them by heart: greedy output reads like its source. Not a training framework: one model
shape, one loop, one GPU. Nothing of Reprise runs here.

    python3 tools/train_byte_llama.py --text /usr/share/common-licenses/* \\
        --out examples/byte-llama --minutes 4

Needs torch and transformers 5 (made with 2.11 and 5.17). Training stops on the clock, so two runs
differ in their bits.
"""

import argparse
import hashlib
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

BOUNDARY = 256
VOCAB_SIZE = 272
MAX_POSITIONS = 2048
MAX_FILE_BYTES = 7_900_000
IGNORE = -100

SAMPLE_PROMPTS = [
    "                    GNU GENERAL PUBLIC LICENSE\n",
    "You may copy and distribute",
    "THE SOFTWARE IS PROVIDED",
    "Licensed under the Apache License",
    "This License applies to any",
]


@dataclass
class Document:
    name: str
    data: bytes
    sha256: str


@dataclass
class Corpus:
    """All documents end to end, each as boundary + bytes + boundary, on the training device."""

    tokens: torch.Tensor  # [total] int64
    starts: torch.Tensor  # [documents] int64, index of a document's first boundary token
    lengths: torch.Tensor  # [documents] int64, both boundaries included


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text",
        nargs="+",
        required=True,
        metavar="FILE",
        help="text files to learn, one document each",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="model directory to write, e.g. examples/byte-llama"
    )
    parser.add_argument(
        "--minutes", type=float, default=4.0, help="wall-clock training time, minutes (default 4)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of the initial weights and of the windows (default 1)",
    )
    parser.add_argument(
        "--batch", type=int, default=128, help="windows of 512 tokens per step (default 128)"
    )
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate (default 2e-3)")
    parser.add_argument(
        "--compile", action="store_true", help="run the training forward through torch.compile"
    )
    args = parser.parse_args()
    if args.minutes <= 0:
        parser.error(f"--minutes: got {args.minutes}, allowed: more than 0")
    if args.batch < 4:
        parser.error(f"--batch: got {args.batch}, allowed: at least 4")
    return args


def read_documents(paths):
    """The distinct files among `paths`: Debian carries the newest GPL, LGPL and GFDL under two
    names each.
    """
    documents, seen = [], set()
    for path in sorted(set(paths)):
        data = Path(path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if not data or digest in seen:
            continue
        seen.add(digest)
        documents.append(Document(Path(path).name, data, digest))
    if not documents:
        raise SystemExit("--text: no file with any text in it")
    return documents


def document_tokens(document):
    return [BOUNDARY, *document.data, BOUNDARY]


def build_corpus(documents, device):
    sequences = [document_tokens(document) for document in documents]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    starts = torch.cumsum(lengths, 0) - lengths
    tokens = torch.tensor([token for sequence in sequences for token in sequence])
    return Corpus(tokens.to(device), starts.to(device), lengths.to(device))


def sample_windows(corpus, num_windows, length, generator):
    """Random windows, each within one document. Returns (inputs, targets), both [num_windows,
    length].

    One window in ten starts at its document's first boundary, so that text from token 256 on is
    learnt well. Windows may run over a document's end, by up to half their length; there the inputs
    are filler and the targets are ignored.
    """
    device = corpus.tokens.device
    document = torch.multinomial(
        corpus.lengths.float(), num_windows, replacement=True, generator=generator
    )
    document_length = corpus.lengths[document]
    span = (document_length - length // 2).clamp(min=1)
    offset = (torch.rand(num_windows, device=device, generator=generator) * span).long()
    from_start = torch.rand(num_windows, device=device, generator=generator) < 0.1
    offset = torch.where(from_start, torch.zeros_like(offset), offset)

    index = offset[:, None] + torch.arange(length + 1, device=device)[None, :]
    inside = index < document_length[:, None]
    position = (corpus.starts[document][:, None] + index).clamp(max=corpus.tokens.numel() - 1)
    window = corpus.tokens[position]
    inputs = torch.where(inside, window, torch.full_like(window, BOUNDARY))[:, :-1]
    targets = torch.where(inside, window, torch.full_like(window, IGNORE))[:, 1:]
    return inputs.contiguous(), targets.contiguous()


def make_model(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=BOUNDARY,
        eos_token_id=BOUNDARY,
    )
    return LlamaForCausalLM(config)


def make_optimizer(model, lr, device):
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=device.type == "cuda"
    )


def learning_rate(peak, step, progress):
    """Linear warm-up over 200 steps, then a cosine over the time budget, down to 1 % of the peak.
    progress: 0..1.
    """
    warm_up = min(1.0, (step + 1) / 200)
    return peak * warm_up * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))))


def window_loss(forward, inputs, targets, device):
    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        logits = forward(input_ids=inputs, use_cache=False).logits
    return F.cross_entropy(
        logits.float().reshape(-1, VOCAB_SIZE), targets.reshape(-1), ignore_index=IGNORE
    )


def train(model, corpus, args, device):
    """Trains in place until the time is up. Returns (steps, tokens)."""
    forward = torch.compile(model) if args.compile else model
    optimizer = make_optimizer(model, args.lr, device)
    generator = torch.Generator(device=device)
    generator.manual_seed(args.seed)
    model.train()
    budget_s, start, step, tokens = args.minutes * 60.0, time.monotonic(), 0, 0
    while (elapsed := time.monotonic() - start) < budget_s:
        lr = learning_rate(args.lr, step, elapsed / budget_s)
        for group in optimizer.param_groups:
            group["lr"] = lr
        # Every fourth step takes a quarter of the windows at four times the length: positions up to
        # the limit get trained too.
        long_step = step % 4 == 3
        num_windows, length = (args.batch // 4, MAX_POSITIONS) if long_step else (args.batch, 512)
        inputs, targets = sample_windows(corpus, num_windows, length, generator)
        loss = window_loss(forward, inputs, targets, device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, tokens = step + 1, tokens + inputs.numel()
        # Reading the loss waits for the device, which also keeps the clock honest.
        if step <= 20 or step % 100 == 0:
            value = loss.item()
            if not math.isfinite(value):
                raise SystemExit(f"loss is {value} at step {step}; try a smaller --lr")
            if step in (1, 5, 20) or step % 200 == 0:
                print(
                    f"step {step:6d}  {elapsed:6.1f} s  lr {lr:.2e}  loss {value:.4f} nats/byte  "
                    f"(windows of {length})",
                    flush=True,
                )
    print(
        f"trained {step} steps, {tokens / 1e6:.0f} M tokens in {time.monotonic() - start:.0f} s",
        flush=True,
    )
    return step, tokens


def save(model, out):
    """Writes the Hugging Face directory with bf16 weights. Returns the weights file's size in
    bytes.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.eval()
    model.to(device="cpu", dtype=torch.bfloat16)
    model.generation_config.bos_token_id = BOUNDARY
    model.generation_config.eos_token_id = BOUNDARY
    model.save_pretrained(str(out))
    tokenizer = {
        "tokenizer_class": "ByteTokenizer",
        "bos_token_id": BOUNDARY,
        "eos_token_id": BOUNDARY,
        "model_max_length": MAX_POSITIONS,
        "vocab_size": VOCAB_SIZE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n")
    check_saved(out)
    return (out / "model.safetensors").stat().st_size


def check_saved(out):
    weights = out / "model.safetensors"
    with safe_open(str(weights), framework="pt") as file:
        names = list(file.keys())
        dtypes = {str(file.get_tensor(name).dtype) for name in names}
    if "lm_head.weight" in names:
        raise SystemExit(f"{weights}: lm_head.weight is stored although the embedding is tied")
    if dtypes != {"torch.bfloat16"}:
        raise SystemExit(f"{weights}: dtypes {sorted(dtypes)}, wanted torch.bfloat16 alone")
    size = weights.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SystemExit(f"{weights}: {size} bytes, allowed: at most {MAX_FILE_BYTES}")
    config = json.loads((out / "config.json").read_text())
    if config.get("dtype") != "bfloat16":
        raise SystemExit(f"{out}/config.json: dtype {config.get('dtype')!r}, wanted 'bfloat16'")


def load_saved(out, device):
    """The model as a user gets it. A cast in place would also round rope's frequencies to bf16,
    which the file does not hold.
    """
    model = LlamaForCausalLM.from_pretrained(str(out), dtype=torch.bfloat16)
    if model.model.rotary_emb.inv_freq.dtype != torch.float32:
        raise SystemExit(
            f"rope frequencies were loaded as {model.model.rotary_emb.inv_freq.dtype}, wanted "
            f"float32"
        )
    return model.to(device).eval()


@torch.no_grad()
def evaluate(model, documents, device):
    """Mean loss in nats per byte and top-1 accuracy over all documents, read in windows of the full
    context.
    """
    loss_sum, correct, count = 0.0, 0, 0
    for document in documents:
        tokens = torch.tensor(document_tokens(document), device=device)
        for begin in range(0, tokens.numel() - 1, MAX_POSITIONS):
            window = tokens[begin : begin + MAX_POSITIONS + 1]
            logits = model(input_ids=window[None, :-1], use_cache=False).logits[0].float()
            loss_sum += F.cross_entropy(logits, window[1:], reduction="sum").item()
            correct += (logits.argmax(-1) == window[1:]).sum().item()
            count += window.numel() - 1
    return loss_sum / count, correct / count


@torch.no_grad()
def greedy(model, prompt_tokens, max_new_tokens, device):
    inputs = torch.tensor([prompt_tokens], device=device)
    output = model.generate(
        input_ids=inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=BOUNDARY,
        pad_token_id=BOUNDARY,
    )
    return output[0, inputs.shape[1] :].tolist()


def to_text(tokens):
    return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


def print_samples(model, device):
    for prompt in SAMPLE_PROMPTS:
        tokens = greedy(model, list(prompt.encode()), 240, device)
        end = " <document boundary>" if BOUNDARY in tokens else ""
        print(f"\n--- prompt {prompt!r}\n{prompt}{to_text(tokens)}{end}", flush=True)


def recited_share(model, documents, device, max_new_tokens=200):
    """Share of each document's bytes 64..264 that greedy decoding gets right from its first 64
    bytes, up to the first mistake.
    """
    shares = []
    for document in documents:
        tokens = document_tokens(document)
        wanted = tokens[65 : 65 + max_new_tokens]
        if not wanted:
            continue
        got = greedy(model, tokens[:65], len(wanted), device)
        right = 0
        while right < min(len(wanted), len(got)) and got[right] == wanted[right]:
            right += 1
        shares.append(right / len(wanted))
    return sum(shares) / max(len(shares), 1)


def write_card(out, args, documents, facts):
    rows = "\n".join(f"| {d.name} | {len(d.data)} | `{d.sha256[:16]}` |" for d in documents)
    total = sum(len(d.data) for d in documents)
    text = f"""# byte-llama

A byte-level Llama of {facts['parameters']:,} parameters, made to be small and to show at a
glance whether a runtime works: it knows its training text by heart, so greedy output must read like
that text. It is good for nothing else.

| | |
|---|---|
| Architecture | Llama: 5 layers, hidden 256, 8 query and 4 key/value heads of 32, intermediate 704, tied embeddings, rope theta 10000 |
| Tokens | ids 0-255 are bytes, 256 is the document boundary (bos and eos), 257-{VOCAB_SIZE - 1} are unused |
| Context | {MAX_POSITIONS} tokens |
| Weights | bf16, `model.safetensors`, {facts['file_bytes']:,} bytes |
| Loss over the training text, bf16 weights and arithmetic | {facts['loss']:.4f} nats per byte, next byte right {100 * facts['accuracy']:.2f} % of the time |
| Recitation | from a document's first 64 bytes, {100 * facts['recited']:.1f} % of the next 200 before the first mistake, mean over the documents |
| Training | {facts['steps']} steps, {facts['tokens'] / 1e6:.0f} M tokens, {args.minutes:g} minutes on {facts['device']} |
| Software | torch {torch.__version__}, transformers {transformers.__version__} |

`tokenizer.json` says the same to tokenizers of Hugging Face's kind; it was written by
`clients/gateway/testing/make_tokenizers.js`.

A document starts after token 256 and ends with token 256. A prompt may also start
in the middle of a text, without it.

## Made by

    python3 tools/train_byte_llama.py --text FILES --out examples/byte-llama \\
        --minutes {args.minutes:g} --seed {args.seed} --batch {args.batch} --lr {args.lr:g}

FILES are the licence texts that every Debian carries in `/usr/share/common-licenses`, each once
({total:,} bytes). Training stops on the clock, so another run gives other bits.

| file | bytes | sha256 (first 16 digits) |
|---|---|---|
{rows}
"""
    (out / "MODEL_CARD.md").write_text(text)


def main():
    args = parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    documents = read_documents(args.text)
    corpus = build_corpus(documents, device)
    model = make_model(args.seed).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{len(documents)} documents, {corpus.tokens.numel()} tokens, {parameters} parameters "
        f"({2 * parameters / 1e6:.2f} MB in bf16), device {device}",
        flush=True,
    )

    steps, tokens = train(model, corpus, args, device)
    file_bytes = save(model, args.out)
    saved = load_saved(args.out, device)
    loss, accuracy = evaluate(saved, documents, device)
    recited = recited_share(saved, documents, device)
    print(
        f"saved weights: loss {loss:.4f} nats/byte, next byte right {100 * accuracy:.2f} %, "
        f"recited {100 * recited:.1f} %"
    )
    device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    write_card(
        args.out,
        args,
        documents,
        {
            "parameters": parameters,
            "file_bytes": file_bytes,
            "loss": loss,
            "accuracy": accuracy,
            "recited": recited,
            "steps": steps,
            "tokens": tokens,
            "device": device_name,
        },
    )
    print_samples(saved, device)
    print(f"\nwrote {args.out}: model.safetensors {file_bytes} bytes")


if __name__ == "__main__":
    main()
