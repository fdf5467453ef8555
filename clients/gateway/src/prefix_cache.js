// SPDX-License-Identifier: Apache-2.0
// PrefixCache: KV blocks that hold whole blocks of prompts, by the tokens in them and before them,
// for rows whose prompts begin alike. A block is used by any number of rows, which only read it.
// Where prompts part in the middle of a block, a row goes on in a copy of it.
// One that no row uses is kept until blocks are needed: then the one goes first that was used least
// recently.
//
// Blocks of sampled tokens are not kept: these were computed one by one, which rounds otherwise,
// and a prompt's answer does not depend on what the gateway has computed before.

// Blocks behind one that are looked at for one to copy, the newest.
const MAX_LOOKED_AT = 64;

class Prefix {
  children = new Map(); // by the tokens of the block behind
  users = 0; // rows
  isWritten = false; // the server has said that it is

  // isReady: the tokens' KV is in the block, for steps that are planned from now on.
  constructor(tokens, block, parent, isReady) {
    this.tokens = tokens;
    this.block = block;
    this.parent = parent;
    this.isReady = isReady;
  }
}

export class PrefixCache {
  #blockSize;
  #maxUnused;
  #root = new Prefix('', undefined, undefined, true);
  // Without users, least recently used first: children before their parents, as they were let go.
  #unused = new Set();

  // maxUnused: blocks that are kept for no row; 0: nothing is shared at all.
  constructor({blockSize, maxUnused}) {
    this.#blockSize = blockSize;
    this.#maxUnused = maxUnused;
  }

  get numUnused() {
    return this.#unused.size;
  }

  // The longest way along at most `most` blocks of a prompt, for `use`. Undefined: one of them is
  // being computed, and the step that does it is not planned yet.
  find(prompt, most) {
    const found = [];
    let at = this.#root;
    for (let i = 0; i < most; ++i) {
      at = at.children.get(this.#tokensOf(prompt, i));
      if (!at) break;
      if (!at.isReady) return undefined;
      found.push(at);
    }
    return found;
  }

  // Behind the way `found`: {prefix, count}, a block that begins with as many tokens as possible of
  // the prompt's, at most up to `end`; undefined: there is none.
  findPart(found, prompt, end) {
    const begin = found.length * this.#blockSize;
    const wanted = prompt.slice(begin, Math.min(end, begin + this.#blockSize));
    const {children} = found.at(-1) ?? this.#root;
    let best;
    for (const prefix of [...children.values()].slice(-MAX_LOOKED_AT)) {
      if (!prefix.isWritten) continue;
      const tokens = prefix.tokens.split(',');
      let count = 0;
      while (count < wanted.length && Number(tokens[count]) === wanted[count]) ++count;
      if (count > (best?.count ?? 0)) best = {prefix, count};
    }
    return best;
  }

  // A row uses what was found.
  use(found) {
    for (const prefix of found) {
      ++prefix.users;
      this.#unused.delete(prefix);
    }
  }

  // The row whose way `found` is has `blocks` for its prompt, and is going to compute what is not
  // found. Returns its way with what others may use of it once it is ready.
  extend(found, prompt, blocks) {
    const way = [...found];
    if (this.#maxUnused === 0) return way;
    let parent = way.at(-1) ?? this.#root;
    for (let i = way.length; (i + 1) * this.#blockSize <= prompt.length; ++i) {
      const tokens = this.#tokensOf(prompt, i);
      if (parent.children.has(tokens)) break;
      const prefix = new Prefix(tokens, blocks[i], parent, false);
      ++prefix.users;
      parent.children.set(tokens, prefix);
      way.push(prefix);
      parent = prefix;
    }
    return way;
  }

  // A way of the blocks of a row, for that row and copies of it alone: nobody finds it, and none of
  // it is kept.
  share(blocks) {
    const parent = new Prefix('', undefined, undefined, false);
    const way = blocks.map((block) => new Prefix('', block, parent, false));
    this.use(way);
    return way;
  }

  // A row leaves its way. Returns the blocks that are not kept.
  release(way) {
    const freed = [];
    for (const prefix of [...way].reverse()) {
      if (--prefix.users > 0) continue;
      if (prefix.isReady) this.#unused.add(prefix);
      else freed.push(this.#forget(prefix));
    }
    return [...freed, ...this.evict(this.#unused.size - this.#maxUnused)];
  }

  // Blocks of the `count` that were used least recently, or of as many as there are.
  evict(count) {
    const freed = [];
    for (const prefix of this.#unused) {
      if (freed.length >= count) break;
      this.#unused.delete(prefix);
      freed.push(this.#forget(prefix));
    }
    return freed;
  }

  // What a row was to compute has failed: nobody else is to use it.
  discard(prefixes) {
    for (const prefix of prefixes) {
      prefix.isReady = prefix.isWritten = false;
      this.#forget(prefix);
    }
  }

  #forget(prefix) {
    const {children} = prefix.parent;
    if (children.get(prefix.tokens) === prefix) children.delete(prefix.tokens);
    return prefix.block;
  }

  #tokensOf(prompt, i) {
    return prompt.slice(i * this.#blockSize, (i + 1) * this.#blockSize).join();
  }
}
