// SPDX-License-Identifier: Apache-2.0
// Tokens of one answer to pieces of text, as they come.

// Of a vocabulary whose bytes are known. A character of several tokens comes out with its last one,
// and bytes that are no character as U+FFFD each part.
export class ByteStream {
  #bytesOf;
  #spaces;
  #decoder = new TextDecoder('utf-8', {ignoreBOM: true});

  // bytesOf(token): undefined where it has no text. spaces: at the begin that are left out.
  constructor(bytesOf, spaces = 0) {
    this.#bytesOf = bytesOf;
    this.#spaces = spaces;
  }

  // Text that is complete with this token; may be empty.
  push(token) {
    const bytes = this.#bytesOf(token);
    return bytes ? this.#strip(this.#decoder.decode(bytes, {stream: true})) : '';
  }

  // What was held back, whole or not.
  flush() {
    return this.#strip(this.#decoder.decode());
  }

  #strip(text) {
    let count = 0;
    while (count < this.#spaces && text[count] === ' ') ++count;
    this.#spaces = count < text.length ? 0 : this.#spaces - count;
    return text.slice(count);
  }
}

const REPLACEMENT = '\ufffd'; // what stands for bytes that are no whole character yet

// Of any vocabulary that can be decoded. A token's text depends on those before it: each is decoded
// behind a few that are known.
export class DecodedStream {
  #model;
  #tokens = [];
  #begin = 0; // first token of the context
  #done = 0; // tokens whose text is out

  // model: has decode(tokens).
  constructor(model) {
    this.#model = model;
  }

  // Text that is complete with this token; may be empty.
  push(token) {
    this.#tokens.push(token);
    const before = this.#model.decode(this.#tokens.slice(this.#begin, this.#done));
    const now = this.#model.decode(this.#tokens.slice(this.#begin));
    if (now.endsWith(REPLACEMENT) || now.length <= before.length) return '';
    this.#begin = this.#done;
    this.#done = this.#tokens.length;
    return now.slice(before.length);
  }

  // What was held back, whole or not.
  flush() {
    const before = this.#model.decode(this.#tokens.slice(this.#begin, this.#done));
    const now = this.#model.decode(this.#tokens.slice(this.#begin));
    this.#begin = this.#done = this.#tokens.length;
    return now.slice(before.length);
  }
}

// An answer all of whose text is what it says: pieces as of HarmonyReader.
export class PlainReader {
  isDone = false;
  #stream;

  constructor(stream) {
    this.#stream = stream;
  }

  push(token) {
    return {part: 'content', text: this.#stream.push(token), isFrame: false};
  }

  flush() {
    return {part: 'content', text: this.#stream.flush(), isFrame: false};
  }
}

// Passes text on up to the first stop string, which is left out. Text that may be the begin of one
// is held back.
export class StopStrings {
  #stops;
  #held = '';
  stopped = false;

  constructor(stops) {
    this.#stops = stops;
  }

  push(text) {
    if (this.stopped) return '';
    this.#held += text;
    const found = this.#stops.map((stop) => this.#held.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.stopped = true;
      return this.#take(Math.min(...found));
    }
    return this.#take(this.#held.length - this.#unsure());
  }

  flush() {
    return this.stopped ? '' : this.#take(this.#held.length);
  }

  #take(length) {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }

  // Length of the longest end that a stop string begins with.
  #unsure() {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, this.#held.length); length > longest; --length) {
        if (this.#held.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}
