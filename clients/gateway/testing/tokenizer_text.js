// SPDX-License-Identifier: Apache-2.0
// A byte-level BPE tokenizer as the text of a tokenizer.json.

// Lines of at most 100 columns.
function wrap(items, indent) {
  const lines = [];
  for (const item of items.map((text, i) => (i + 1 < items.length ? `${text},` : text))) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + item.length < 99) lines[lines.length - 1] += ` ${item}`;
    else lines.push(indent + item);
  }
  return lines.join('\n');
}

// names: of tokens, by id, as byteNames() has them for bytes. specials: ids of special tokens.
// merges: pairs of names. unknown: name of the token for what has none.
export function tokenizerText({names, specials, merges, unknown}) {
  const added = specials.map((id) => {
    const flags = {single_word: false, lstrip: false, rstrip: false, normalized: false};
    const fields = Object.entries({id, content: names[id], ...flags, special: true});
    const written = fields.map(([name, value]) => `"${name}": ${JSON.stringify(value)}`);
    return `    {\n${wrap(written, '      ')}\n    }`;
  });
  const vocabulary = names.map((name, id) => `${JSON.stringify(name)}: ${id}`);
  const level = `{
    "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false
  }`;
  return `{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
${added.join(',\n')}
  ],
  "normalizer": null,
  "pre_tokenizer": ${level},
  "post_processor": null,
  "decoder": ${level},
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": ${JSON.stringify(unknown ?? null)},
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "vocab": {
${wrap(vocabulary, '      ')}
    },
    "merges": [
${wrap(merges.map((pair) => JSON.stringify(pair)), '      ')}
    ]
  }
}
`;
}
