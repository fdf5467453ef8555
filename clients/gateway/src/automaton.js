// SPDX-License-Identifier: Apache-2.0
// Automaton: a pushdown automaton over bytes that takes all ways at once.
//
// A grammar is a graph of nodes. Being at a node, a byte leads on along an edge; a call goes to
// another node, and on from `back` once that returns. A state is the set of all places where a text
// may have come to: nodes, each with the stack of where its calls go back to. States and stacks are
// shared: equal ones are the same object, so that what is found out about one is found out once.
// Whatever looks for a state throws RangeError where it would have too many places.

const MAX_PLACES = 1000; // of one state: an ambiguous grammar may double them with every byte

export class Node {
  edges = []; // {bytes, to}; bytes: 256 flags
  calls = []; // {entry, back}
  jumps = []; // nodes, reached without a byte
  returns = false;
}

let nextPlace = 1;

// A node and, below it, the places that its calls go back to.
class Place {
  id = nextPlace++;
  #above = new Map(); // by node

  // below: undefined where a return leaves the automaton.
  constructor(node, below) {
    this.node = node;
    this.below = below;
  }

  on(node) {
    let place = this.#above.get(node);
    if (!place) this.#above.set(node, (place = new Place(node, this)));
    return place;
  }

  forget() {
    this.#above.clear();
  }
}

export class State {
  #automaton;
  #next = []; // by byte; null: no way

  // places: those with edges, each once. accepts: the text may end here.
  constructor(automaton, places, accepts) {
    this.#automaton = automaton;
    this.places = places;
    this.accepts = accepts;
  }

  // The text has to end here.
  get isEnd() {
    return this.places.length === 0;
  }

  // The state behind a byte, or null.
  next(byte) {
    const known = this.#next[byte];
    return known !== undefined ? known : (this.#next[byte] = this.#automaton.follow(this, byte));
  }

  forget() {
    this.#next = [];
  }
}

export class Automaton {
  #bottom = new Place(undefined, undefined);
  #states = new Map(); // by the ids of their places

  get numStates() {
    return this.#states.size;
  }

  // Where a text begins that `node` stands for.
  at(node) {
    return this.#stateOf((closing) => this.#close(node, this.#bottom, closing));
  }

  // Where a text begins that leaves `node` along one of its own edges, and has nowhere else to go.
  on(node) {
    return this.#stateOf(({places}) => places.push(this.#bottom.on(node)));
  }

  // Where a text goes on once the call at `place` has returned; `place` has one below it.
  back(place) {
    const {node, below} = place.below;
    return this.#stateOf((closing) => this.#close(node, below, closing));
  }

  // True where a return from the place ends the text.
  isOutermost({below}) {
    return below === this.#bottom;
  }

  // Forgets what was found out; states that somebody has stay right.
  forget() {
    for (const state of this.#states.values()) state.forget();
    this.#states.clear();
    this.#bottom.forget();
  }

  // For State.next.
  follow(state, byte) {
    return this.#stateOf((closing) => {
      for (const {node, below} of state.places) {
        for (const {bytes, to} of node.edges) if (bytes[byte]) this.#close(to, below, closing);
      }
    });
  }

  // Null where there is no place to be and no end.
  #stateOf(fill) {
    const closing = {seen: new Set(), places: [], accepts: false};
    fill(closing);
    const {places, accepts} = closing;
    if (places.length === 0 && !accepts) return null;
    places.sort((a, b) => a.id - b.id);
    const key = `${places.map(({id}) => id).join()}${accepts ? '.' : ''}`;
    let state = this.#states.get(key);
    if (!state) this.#states.set(key, (state = new State(this, places, accepts)));
    return state;
  }

  // Adds what is reached from a node without a byte.
  #close(node, below, closing) {
    const reached = [below.on(node)];
    while (reached.length > 0) {
      const place = reached.pop();
      if (closing.seen.has(place)) continue;
      closing.seen.add(place);
      if (place.node.edges.length > 0) closing.places.push(place);
      if (closing.places.length > MAX_PLACES) throw new RangeError(`more than ${MAX_PLACES} ways`);
      for (const next of this.#reachedFrom(place)) reached.push(next);
      if (place.node.returns && place.below === this.#bottom) closing.accepts = true;
    }
  }

  *#reachedFrom({node, below}) {
    for (const to of node.jumps) yield below.on(to);
    for (const {entry, back} of node.calls) yield below.on(back).on(entry);
    if (node.returns && below !== this.#bottom) yield below.below.on(below.node);
  }
}
