// SPDX-License-Identifier: Apache-2.0
// Which bytes each token of a Hugging Face tokenizer stands for.
//
// Two kinds of vocabulary are known: byte-level ones, which write every byte as a visible
// character, and those of SentencePiece, which write a space as U+2581 and single bytes as <0x0A>.

// How byte-level tokenizers write a byte, by byte: printable ones of Latin-1 as themselves, the
// others as the characters from U+0100 on, in order.
export function byteNames() {
  const names = [];
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) {
    const visible =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    names.push(String.fromCodePoint(visible ? byte : next++));
  }
  return names;
}

function byteLevelDecoder() {
  const byteOf = new Map(byteNames().map((name, byte) => [name, byte]));
  return (token) => {
    const bytes = [...token].map((name) => byteOf.get(name));
    return bytes.includes(undefined) ? Buffer.from(token) : Buffer.from(bytes);
  };
}

function sentencePieceDecoder(token) {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(token)?.[1];
  return byte ? Buffer.from(byte, 'hex') : Buffer.from(token.replaceAll('\u2581', ' '));
}

// The decoder's steps, in order.
function stepsOf(decoder) {
  if (decoder?.type === 'Sequence') return decoder.decoders.flatMap(stepsOf);
  return decoder ? [decoder] : [];
}

const asWritten = (token) => Buffer.from(token);

// {piece, added}: functions from the names of tokens to bytes.
function decoderOf({model, decoder}) {
  const steps = stepsOf(decoder).map(({type}) => type);
  if (steps.includes('ByteLevel')) return {piece: byteLevelDecoder(), added: asWritten};
  const spaces = steps.includes('Metaspace') || steps.includes('Replace');
  if (spaces && ['BPE', 'Unigram'].includes(model.type)) {
    return {piece: sentencePieceDecoder, added: sentencePieceDecoder};
  }
  const got = `a ${model.type} tokenizer whose decoder is ${steps.join(', ') || 'none'}`;
  throw new Error(`got ${got}, allowed: ByteLevel, and BPE or Unigram with Metaspace or Replace`);
}

function pairsOf({vocab}) {
  return Array.isArray(vocab) ? vocab.map(([token], id) => [token, id]) : Object.entries(vocab);
}

// Bytes by token id; none for special tokens, which have no text, and for ids that are no token's.
// tokenizer: the contents of tokenizer.json. Throws Error for a kind of vocabulary that is not
// known.
export function tokenBytesOf(tokenizer) {
  const {piece, added} = decoderOf(tokenizer);
  const bytes = [];
  for (const [token, id] of pairsOf(tokenizer.model)) bytes[id] = piece(token);
  for (const {id, content, special} of tokenizer.added_tokens ?? []) {
    bytes[id] = special ? undefined : added(content);
  }
  return bytes;
}

// Of a decoder's step, how many spaces it takes off the begin of a text.
function spacesOf(step) {
  if (step.type === 'Strip') return step.content === ' ' ? (step.start ?? 0) : 0;
  if (step.type !== 'Metaspace') return 0;
  const {prepend_scheme: scheme, add_prefix_space: adds} = step;
  return scheme === 'never' || (scheme === undefined && adds === false) ? 0 : 1;
}

// Spaces that the tokenizer puts before a text, and that its decoder takes off again.
export function leadingSpacesOf({decoder}) {
  return stepsOf(decoder).reduce((sum, step) => sum + spacesOf(step), 0);
}
