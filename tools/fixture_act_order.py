#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the fixture int4-act-order-tiny of int4-gptq-tiny: the same function, with channels in
another order, so that GPTQ's groups are of inputs that are not neighbours.

usage: fixture_act_order.py [--fixtures DIR] [--out DIR]

Channels of the residual stream, of each MLP and of the heads are exchanged, in every tensor that
has them. Elements, scales and zero points stay what they are; what moves is the group that an input
belongs to, which g_idx says. So the reference logits are those that transformers computed for
int4-gptq-tiny, whose references are copied. Of o_proj whole groups change places: two heads are one
group, and only heads of one KV head may move alone. Needs nothing but Python.
"""

import argparse
import json
import pathlib
import random
import shutil
import struct

SOURCE = "int4-gptq-tiny"
NAME = "int4-act-order-tiny"
SEED = 7
OF_WORD = 8


class Tensor:
    """Elements as bytes of `width` each, one dimension or two."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape = dtype, shape
        count = 1
        for size in shape:
            count *= size
        self.width = len(data) // count
        self.elements = [data[i : i + self.width] for i in range(0, len(data), self.width)]

    def rows(self):
        columns = self.shape[-1]
        return [self.elements[i : i + columns] for i in range(0, len(self.elements), columns)]

    def set_rows(self, rows):
        self.elements = [element for row in rows for element in row]

    def take_rows(self, order):
        rows = self.rows()
        self.set_rows([rows[i] for i in order])

    def take_columns(self, order):
        self.set_rows([[row[i] for i in order] for row in self.rows()])

    def bytes(self):
        return b"".join(self.elements)


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", None)
    begin = 8 + length
    tensors = {
        name: Tensor(
            entry["dtype"],
            entry["shape"],
            data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        offsets = [len(data), len(data) + len(tensor.bytes())]
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
        data += tensor.bytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def unpacked(tensor):
    """[rows, columns] words as [rows * 8, columns] elements: the words' neighbours lie in rows."""
    out = []
    for row in tensor.rows():
        words = [struct.unpack("<I", word)[0] for word in row]
        out += [[word >> (4 * k) & 15 for word in words] for k in range(OF_WORD)]
    return out


def packed(tensor, elements):
    rows = []
    for i in range(0, len(elements), OF_WORD):
        eight = elements[i : i + OF_WORD]
        rows.append(
            [
                struct.pack("<I", sum(eight[k][j] << (4 * k) for k in range(OF_WORD)))
                for j in range(len(eight[0]))
            ]
        )
    tensor.set_rows(rows)


def exchange(tensors, layer, inputs, outputs):
    """A linear layer whose inputs and outputs are in those orders: new channel i was order[i]."""
    words = tensors[layer + ".qweight"]  # [inputs / 8, outputs]
    elements = unpacked(words)
    packed(words, [[elements[i][j] for j in outputs] for i in inputs])
    tensors[layer + ".scales"].take_columns(outputs)
    zeros = tensors[layer + ".qzeros"]  # [groups, outputs / 8]
    rows = []
    for row in zeros.rows():
        bits = [struct.unpack("<I", word)[0] >> (4 * k) & 15 for word in row for k in range(OF_WORD)]
        bits = [bits[j] for j in outputs]
        rows.append(
            [
                struct.pack("<I", sum(bits[i + k] << (4 * k) for k in range(OF_WORD)))
                for i in range(0, len(bits), OF_WORD)
            ]
        )
    zeros.set_rows(rows)
    tensors[layer + ".g_idx"].take_columns(inputs)


def exchange_model(tensors, config, generator):
    def shuffled(count):
        order = list(range(count))
        generator.shuffle(order)
        return order

    heads, kv_heads, size = (
        config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    hidden = shuffled(config["hidden_size"])
    for name in tensors:
        if name.endswith(("norm.weight", "embed_tokens.weight")):
            tensors[name].take_columns(hidden)
    for block in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{block}."
        # Heads in another order; of v, and so of what attention leaves, elements of a head too.
        kv_order = list(reversed(range(kv_heads)))
        within = {head: shuffled(size) for head in range(kv_heads)}
        queries = [
            kv * (heads // kv_heads) + i for kv in kv_order for i in range(heads // kv_heads)
        ]
        q = [head * size + i for head in queries for i in range(size)]
        k = [head * size + i for head in kv_order for i in range(size)]
        v = [head * size + i for head in kv_order for i in within[head]]
        attended = [
            head * size + i for head in queries for i in within[head // (heads // kv_heads)]
        ]
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        exchange(tensors, attention + "q_proj", hidden, q)
        exchange(tensors, attention + "k_proj", hidden, k)
        exchange(tensors, attention + "v_proj", hidden, v)
        exchange(tensors, attention + "o_proj", attended, hidden)
        middle = shuffled(config["intermediate_size"])
        exchange(tensors, mlp + "gate_proj", hidden, middle)
        exchange(tensors, mlp + "up_proj", hidden, middle)
        exchange(tensors, mlp + "down_proj", middle, hidden)


def make(fixtures, out):
    """Reads fixtures / SOURCE, writes out / NAME."""
    source, made = fixtures / SOURCE, out / NAME
    made.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    tensors, metadata = read_safetensors(source / "model.safetensors")
    exchange_model(tensors, config, random.Random(SEED))
    write_safetensors(made / "model.safetensors", tensors, metadata)
    for name in ("config.json", "config_transformers5.json"):
        text = (source / name).read_text()
        (made / name).write_text(text.replace('"desc_act": false', '"desc_act": true'))
    text = (source / "reference.json").read_text()
    about = json.loads(text)["about"]
    for field, new in (
        ("model", about["model"].replace("as GPTQ stores", "as GPTQ with desc_act stores")),
        ("made_by", f"python3 tools/fixture_act_order.py of {SOURCE}, channels in another order"),
    ):
        text = text.replace(json.dumps(about[field]), json.dumps(new))
    (made / "reference.json").write_text(text)
    for name in ("generation_config.json", "reference.safetensors"):
        shutil.copyfile(source / name, made / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures"
    parser.add_argument("--fixtures", type=pathlib.Path, default=default, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="default: --fixtures")
    flags = parser.parse_args()
    make(flags.fixtures, flags.out or flags.fixtures)


if __name__ == "__main__":
    main()
