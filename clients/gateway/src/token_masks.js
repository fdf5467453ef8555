// SPDX-License-Identifier: Apache-2.0
// TokenMasks: which tokens of a vocabulary may come next in a text of a grammar.
//
// The vocabulary is a trie that is walked with the automaton's states; a subtree whose byte leads
// nowhere is passed over. Most of what a walk finds depends on the node alone: tokens
// that end before the node's rule does. It is found once per node; what is left for each state are
// the tokens in which a rule ends and another goes on.
import {Automaton} from './automaton.js';

// Measured with 200,000 tokens (docs/clients.md): a mask takes 0.02 ms (median) to 0.1 ms (mean),
// a node that is seen for the first time up to 35 ms, the trie 0.6 s at the start.
const MAX_MASK_BYTES = 64 << 20;
const MAX_NODE_BYTES = 256 << 20;
const MAX_STATES = 100000;
const FEW_TOKENS = 256; // are kept as a list

function compareBytes([a], [b]) {
  return Buffer.compare(a, b);
}

// Nodes in pre-order, the root left out: columns of byte, depth (from 1 on) and where the node's
// subtree ends. Tokens of node i are tokens[firstToken[i]] up to that of the node behind; a node
// that is only on the way to others has none.
class Trie {
  // tokens: [bytes, id] each, in any order.
  constructor(tokens) {
    const sorted = [...tokens].sort(compareBytes);
    const [byte, depth, end, firstToken, path] = [[], [], [], [], []];
    this.tokens = Int32Array.from(sorted, ([, id]) => id);
    let before = Buffer.alloc(0);
    for (const [i, [bytes]] of sorted.entries()) {
      let same = 0;
      while (same < before.length && same < bytes.length && before[same] === bytes[same]) ++same;
      while (path.length > same) end[path.pop()] = byte.length;
      for (let at = same; at < bytes.length; ++at) {
        path.push(byte.length);
        byte.push(bytes[at]);
        depth.push(at + 1);
        firstToken.push(i);
      }
      before = bytes;
    }
    while (path.length > 0) end[path.pop()] = byte.length;
    this.size = byte.length;
    this.byte = Uint8Array.from(byte);
    this.depth = Uint16Array.from(depth);
    this.end = Int32Array.from(end);
    this.firstToken = Int32Array.from([...firstToken, sorted.length]);
    this.maxDepth = Math.max(0, ...new Set(depth));
  }
}

// What is known of a node whatever its stack: tokens that end inside its rule, and the nodes of the
// trie at which the rule may have ended.
class NodeMask {
  #words;
  #tokens; // instead, where there are few

  constructor(words, exits) {
    this.exits = Int32Array.from(exits);
    const tokens = tokensIn(words, FEW_TOKENS + 1);
    if (tokens.length > FEW_TOKENS) this.#words = words;
    else this.#tokens = Int32Array.from(tokens);
  }

  get numBytes() {
    return (this.#words ?? this.#tokens).byteLength + this.exits.byteLength;
  }

  // Allows its tokens in a mask.
  addTo(words) {
    const own = this.#words;
    if (own) for (let i = 0; i < words.length; ++i) words[i] |= own[i];
    else for (const token of this.#tokens) allow(words, token);
  }
}

// The first `most` tokens of a mask.
function tokensIn(words, most) {
  const tokens = [];
  for (let i = 0; i < words.length && tokens.length < most; ++i) {
    for (let bits = words[i]; bits !== 0; bits &= bits - 1) {
      tokens.push(32 * i + 31 - Math.clz32(bits & -bits));
    }
  }
  return tokens;
}

export class TokenMasks {
  #automaton = new Automaton();
  #trie;
  #vocabSize;
  #endTokens;
  #tokenBytes;
  #byNode = new WeakMap();
  #byState = new WeakMap();
  #maskBytes = 0;
  #nodeBytes = 0;
  #maxMaskBytes;
  #path; // states by depth, of the walk that goes on

  // tokenBytes: by id; undefined: a token that no text has. endTokens: ids that end a text.
  // maxMaskBytes: of the masks of all states; when there are more, they are found again.
  constructor({tokenBytes, vocabSize, endTokens, maxMaskBytes = MAX_MASK_BYTES}) {
    this.#maxMaskBytes = maxMaskBytes;
    this.#vocabSize = vocabSize;
    this.#endTokens = endTokens;
    const isText = (bytes, id) => bytes?.length > 0 && id < vocabSize && !endTokens.includes(id);
    this.#tokenBytes = tokenBytes.map((bytes, id) => (isText(bytes, id) ? bytes : undefined));
    const tokens = [];
    this.#tokenBytes.forEach((bytes, id) => bytes && tokens.push([bytes, id]));
    this.#trie = new Trie(tokens);
    this.#path = new Array(this.#trie.maxDepth + 1);
  }

  // Flags of the bytes that are a token each: a text of these can always be written.
  get alphabet() {
    const flags = new Uint8Array(256);
    for (const bytes of this.#tokenBytes) if (bytes?.length === 1) flags[bytes[0]] = 1;
    return flags;
  }

  // Where texts of the grammar begin. All of its bytes are in the alphabet.
  begin(entry) {
    return this.#automaton.at(entry);
  }

  // The state behind a token, or null where it may not come. A token that ends a text leaves the
  // state where it is.
  advance(state, token) {
    if (this.#endTokens.includes(token)) return state.accepts ? state : null;
    const bytes = this.#tokenBytes[token];
    if (!bytes) return null;
    let at = state;
    for (const byte of bytes) {
      at = at.next(byte);
      if (at === null) return null;
    }
    return at;
  }

  // A bit per token that may come next, as the wire contract has it. The same object for the same
  // state; not to be changed.
  maskOf(state) {
    const known = this.#byState.get(state);
    if (known) return known;
    this.#boundMemory();
    const words = new Uint32Array(Math.ceil(this.#vocabSize / 32));
    for (const place of state.places) this.#addPlace(place, words);
    if (state.accepts) for (const token of this.#endTokens) allow(words, token);
    const mask = new Uint8Array(words.buffer, 0, Math.ceil(this.#vocabSize / 8));
    this.#byState.set(state, mask);
    this.#maskBytes += mask.length;
    return mask;
  }

  #boundMemory() {
    if (this.#nodeBytes > MAX_NODE_BYTES) {
      this.#byNode = new WeakMap();
      this.#nodeBytes = 0;
    }
    const {numStates} = this.#automaton;
    if (this.#maskBytes < this.#maxMaskBytes && numStates < MAX_STATES) return;
    this.#automaton.forget();
    this.#byState = new WeakMap();
    this.#maskBytes = 0;
  }

  #addPlace(place, words) {
    const known = this.#nodeMask(place.node);
    const {exits} = known;
    known.addTo(words);
    if (exits.length === 0) return;
    const outermost = this.#automaton.isOutermost(place);
    const after = outermost ? null : this.#automaton.back(place);
    for (const at of exits) {
      this.#allowAt(at, words);
      if (after) this.#walk(after, at + 1, this.#trie.end[at], words);
    }
  }

  // The walk of a node takes the automaton as if nothing was below the node, and leaves jumps and
  // calls to the places that they lead to.
  #nodeMask(node) {
    let known = this.#byNode.get(node);
    if (!known) {
      const words = new Uint32Array(Math.ceil(this.#vocabSize / 32));
      const exits = [];
      this.#walk(this.#automaton.on(node), 0, this.#trie.size, words, exits);
      this.#byNode.set(node, (known = new NodeMask(words, exits)));
      this.#nodeBytes += known.numBytes;
    }
    return known;
  }

  // Allows the tokens of the trie's nodes from `begin` up to `end`, the subtrees of one node, that
  // lead on from `state`. exits: takes the nodes at which the text may have ended; without it,
  // these are allowed too.
  #walk(state, begin, end, words, exits) {
    const {byte, depth, end: ends} = this.#trie;
    if (begin >= end) return;
    const base = depth[begin] - 1;
    const path = this.#path;
    path[base] = state;
    for (let at = begin; at < end;) {
      const next = path[depth[at] - 1].next(byte[at]);
      if (next === null) {
        at = ends[at];
        continue;
      }
      path[depth[at]] = next;
      if (next.accepts && exits) exits.push(at);
      if (!next.isEnd || !exits) this.#allowAt(at, words);
      at = next.isEnd ? ends[at] : at + 1;
    }
  }

  #allowAt(at, words) {
    const {firstToken, tokens} = this.#trie;
    for (let i = firstToken[at]; i < firstToken[at + 1]; ++i) allow(words, tokens[i]);
  }
}

function allow(words, token) {
  words[token >>> 5] |= 1 << (token & 31);
}

// Matcher: one text that grows by tokens.
export class Matcher {
  // Which tokens may come next, as the wire contract has it; undefined behind the end.
  mask;
  #masks;
  #state;

  // Throws RangeError, as does `advance`, where the text could go on in too many ways.
  constructor(masks, entry) {
    this.#masks = masks;
    this.#enter(masks.begin(entry));
  }

  // The text is whole, and nothing may follow.
  get isDone() {
    return this.#state.isEnd;
  }

  // Takes a token; false where it may not come, and then nothing changes.
  advance(token) {
    const next = this.#masks.advance(this.#state, token);
    if (next === null) return false;
    this.#enter(next);
    return true;
  }

  #enter(state) {
    this.mask = state.isEnd ? undefined : this.#masks.maskOf(state);
    this.#state = state;
  }
}
