// SPDX-License-Identifier: Apache-2.0
// JsonRules: the parts of JSON that every schema is made of, as nodes of an automaton, made of the
// bytes that a vocabulary can write.
//
// What is written is narrower than JSON, so that any reader takes it and no text goes on for ever:
// a space or a line break with up to 20 spaces or tabs between two signs, numbers of up to 15
// digits before and behind the point and two of the exponent, no halves of surrogate pairs.
import {Node} from './automaton.js';

const MAX_DIGITS = 15; // before the point, and behind it
const MAX_INDENT = 20;

const range = (first, last) => Array.from({length: last - first + 1}, (_, i) => first + i);
const codes = (text) => [...Buffer.from(text)];
const tail = range(0x80, 0xbf);
const hex = codes('0123456789abcdefABCDEF');

// Characters of a string beyond ASCII, byte by byte: well-formed UTF-8 (RFC 3629).
const utf8 = [
  [range(0xc2, 0xdf), tail],
  [[0xe0], range(0xa0, 0xbf), tail],
  [[...range(0xe1, 0xec), 0xee, 0xef], tail, tail],
  [[0xed], range(0x80, 0x9f), tail],
  [[0xf0], range(0x90, 0xbf), tail, tail],
  [range(0xf1, 0xf3), tail, tail, tail],
  [[0xf4], range(0x80, 0x8f), tail, tail],
];
const plain = range(0x20, 0x7f).filter((byte) => !codes('"\\').includes(byte));
const backslash = codes('\\');
const escapes = [
  [backslash, codes('"\\/bfnrt')],
  [backslash, codes('u'), codes('0123456789abcefABCEF'), hex, hex, hex],
  [backslash, codes('u'), codes('dD'), codes('01234567'), hex, hex],
  [
    ...[backslash, codes('u'), codes('dD'), codes('89abAB'), hex, hex],
    ...[backslash, codes('u'), codes('dD'), codes('cdefCDEF'), hex, hex],
  ],
];
const characters = [[plain], ...escapes, ...utf8];

export class JsonRules {
  #alphabet;
  #known = new Map(); // rules by name
  #flags = new Map(); // by bytes
  #nodesLeft = Infinity;

  // alphabet: 256 flags, the bytes that can be written.
  constructor(alphabet) {
    this.#alphabet = alphabet;
  }

  // How many nodes may be made from now on; then RangeError is thrown.
  limitNodes(count) {
    this.#nodesLeft = count;
  }

  get nodesLeft() {
    return this.#nodesLeft;
  }

  node() {
    if (--this.#nodesLeft < 0) throw new RangeError('too many nodes');
    return new Node();
  }

  // A node at which a rule ends.
  #end() {
    return Object.assign(this.node(), {returns: true});
  }

  // ---- ways from node to node ----

  // One of the bytes. False: the alphabet has none of them, and there is no way.
  #byte(from, bytes, to) {
    const flags = this.#flagsOf(bytes);
    if (!flags.includes(1)) return false;
    from.edges.push({bytes: flags, to});
    return true;
  }

  #flagsOf(bytes) {
    const name = bytes.join();
    let flags = this.#flags.get(name);
    if (!flags) {
      this.#flags.set(name, (flags = new Uint8Array(256)));
      for (const byte of bytes) flags[byte] = this.#alphabet[byte];
    }
    return flags;
  }

  // One byte after the other, each one of several.
  #sequence(from, classes, to) {
    if (classes.some((bytes) => !bytes.some((byte) => this.#alphabet[byte]))) return;
    let at = from;
    for (const [i, bytes] of classes.entries()) {
      const next = i + 1 < classes.length ? this.node() : to;
      this.#byte(at, bytes, next);
      at = next;
    }
  }

  // A text. Throws Error where the alphabet has not all of its bytes.
  text(from, text, to = this.node()) {
    this.#sequence(
      from,
      this.#bytesOf(text).map((byte) => [byte]),
      to,
    );
    return to;
  }

  #bytesOf(text) {
    const bytes = codes(text);
    const missing = bytes.find((byte) => !this.#alphabet[byte]);
    if (missing === undefined) return bytes;
    const shown = `0x${missing.toString(16).padStart(2, '0')}`;
    throw new Error(`the model's vocabulary has no token for byte ${shown}, which ${text} needs`);
  }

  call(from, entry, back = this.node()) {
    from.calls.push({entry, back});
    return back;
  }

  // ---- rules: nodes where they begin ----

  #rule(name, fill) {
    let entry = this.#known.get(name);
    if (!entry) {
      this.#known.set(name, (entry = this.node()));
      try {
        fill(entry, this.#end());
      } catch (error) {
        this.#known.delete(name);
        throw error;
      }
    }
    return entry;
  }

  // Nothing, a space, or a line break and an indent.
  get space() {
    return this.#rule('space', (entry, end) => {
      entry.jumps.push(end);
      this.#byte(entry, codes(' '), end);
      let at = this.node();
      this.#byte(entry, codes('\n'), at);
      for (let i = 0; i <= MAX_INDENT; ++i) {
        at.jumps.push(end);
        const next = this.node();
        if (i === MAX_INDENT || !this.#byte(at, codes(' \t'), next)) break;
        at = next;
      }
    });
  }

  get integer() {
    return this.#rule('integer', (entry, end) => this.#whole(entry, end));
  }

  get number() {
    return this.#rule('number', (entry, end) => {
      const whole = this.node();
      this.#whole(entry, whole);
      const [point, exponent] = [this.node(), this.node()];
      this.#byte(whole, codes('.'), point);
      const fraction = this.node();
      this.#digits(point, MAX_DIGITS, fraction);
      for (const at of [whole, fraction]) {
        at.jumps.push(end);
        this.#byte(at, codes('eE'), exponent);
      }
      const sign = this.node();
      this.#byte(exponent, codes('+-'), sign);
      exponent.jumps.push(sign);
      this.#digits(sign, 2, end);
    });
  }

  #whole(from, to) {
    const sign = this.node();
    this.#byte(from, codes('-'), sign);
    from.jumps.push(sign);
    this.text(sign, '0', to);
    const more = this.node();
    this.#byte(sign, codes('123456789'), more);
    more.jumps.push(to);
    this.#digits(more, MAX_DIGITS - 1, to);
  }

  // From one to `most` digits.
  #digits(from, most, to) {
    let at = from;
    for (let i = 0; i < most; ++i) {
      const next = this.node();
      if (!this.#byte(at, codes('0123456789'), next)) return;
      next.jumps.push(to);
      at = next;
    }
  }

  literal(text) {
    const entry = this.node();
    this.text(entry, text, this.#end());
    return entry;
  }

  // One of several texts, which go on together as long as they are alike.
  choice(texts) {
    const [entry, end] = [this.node(), this.#end()];
    const ways = new Map(); // from nodes, by byte
    for (const text of texts) {
      let at = entry;
      for (const byte of this.#bytesOf(text)) {
        if (!ways.has(at)) ways.set(at, new Map());
        const known = ways.get(at);
        if (!known.has(byte)) {
          known.set(byte, this.node());
          this.#byte(at, [byte], known.get(byte));
        }
        at = known.get(byte);
      }
      at.jumps.push(end);
    }
    return entry;
  }

  get string() {
    return this.boundedString(0);
  }

  // A string of least to most characters. most: undefined: without a bound.
  boundedString(least, most) {
    // What is left where any number will do is shared by all of them.
    let rest = most === undefined ? this.#anyCharacters : this.#characters(most - least);
    for (let i = 0; i < least; ++i) {
      const more = this.node();
      this.#character(more, rest);
      rest = more;
    }
    const entry = this.node();
    this.text(entry, '"').jumps.push(rest);
    return entry;
  }

  // What is left of a string: characters and its end.
  get #anyCharacters() {
    return this.#rule('characters', (entry, end) => {
      this.text(entry, '"', end);
      this.#character(entry, entry);
    });
  }

  #characters(most) {
    for (let left = 0; left < most; ++left) this.#charactersOf(left); // no deep recursion
    return this.#charactersOf(most);
  }

  #charactersOf(most) {
    return this.#rule(`characters ${most}`, (entry, end) => {
      this.text(entry, '"', end);
      if (most > 0) this.#character(entry, this.#charactersOf(most - 1));
    });
  }

  #character(from, to) {
    for (const classes of characters) this.#sequence(from, classes, to);
  }

  // Any value.
  get value() {
    return this.#rule('value', (entry) => {
      const words = ['true', 'false', 'null'].map((word) => this.literal(word));
      entry.jumps.push(this.string, this.number, this.array(this.value, {}), this.object, ...words);
    });
  }

  // Any object.
  get object() {
    return this.#rule('object', (entry) => entry.jumps.push(this.map(this.value)));
  }

  // An array of values that begin at `item`. most: undefined: without a bound.
  array(item, {least = 0, most}) {
    const entry = this.node();
    const end = this.#end();
    let at = this.call(this.text(entry, '['), this.space);
    const close = this.node();
    this.text(close, ']', end);
    if (least === 0) at.jumps.push(close);
    for (let count = 1; most === undefined || count <= most; ++count) {
      const behind = this.call(this.call(at, item), this.space);
      if (count >= least) behind.jumps.push(close);
      if (count === most) break;
      const isLoop = most === undefined && count >= Math.max(1, least);
      const next = isLoop && count > 1 ? at : this.node();
      this.call(this.text(behind, ','), this.space, next);
      if (next === at) break;
      at = next;
    }
    return entry;
  }

  // An object of any names whose values begin at `value`.
  map(value) {
    const entry = this.node();
    const end = this.#end();
    const [first, more, behind] = [this.node(), this.node(), this.node()];
    this.call(this.text(entry, '{'), this.space, first);
    this.text(first, '}', end);
    for (const at of [first, more]) this.#member(at, this.string, value, behind);
    this.text(behind, '}', end);
    this.call(this.text(behind, ','), this.space, more);
    return entry;
  }

  // members: {name, value, isRequired}, in the order in which they are written.
  record(members) {
    const entry = this.node();
    const end = this.#end();
    // Where nothing is written yet, and where something is.
    let first = this.call(this.text(entry, '{'), this.space);
    let more = this.node();
    for (const {name, value, isRequired} of members) {
      const [nextFirst, nextMore] = [this.node(), this.node()];
      if (!isRequired) {
        first.jumps.push(nextFirst);
        more.jumps.push(nextMore);
      }
      const key = this.literal(JSON.stringify(name));
      this.#member(first, key, value, nextMore);
      this.#member(this.call(this.text(more, ','), this.space), key, value, nextMore);
      [first, more] = [nextFirst, nextMore];
    }
    for (const at of [first, more]) this.text(at, '}', end);
    return entry;
  }

  #member(from, key, value, to) {
    const colon = this.text(this.call(this.call(from, key), this.space), ':');
    this.call(this.call(this.call(colon, this.space), value), this.space, to);
  }
}
