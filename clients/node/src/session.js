// SPDX-License-Identifier: Apache-2.0
// Session: sequence numbers, the answers to pipelined steps, and resuming a lost stream.
//
// Steps that are unanswered wait in the order in which they were sent, which is that of the
// answers. docs/wire.md and docs/sessions.md say what the server promises.
import {setTimeout as sleep} from 'node:timers/promises';

import {status} from '@grpc/grpc-js';

import {
  FailedPreconditionError,
  SessionEndedError,
  errorOfCall,
  errorOfCode,
} from './errors.js';

// How a stream ends that is lost rather than ended by the server's decision.
const lostCodes = [status.UNAVAILABLE, status.CANCELLED, status.INTERNAL, status.UNKNOWN];
const firstDelayMs = 50;
const longestDelayMs = 1000;

// A server that drains ends its sessions.
function isLost(error) {
  return lostCodes.includes(error.code) && !error.message.includes('draining');
}

// Made by Client.openSession.
export class Session {
  #begin; // ({resume}) => {stream, answer}
  #encode; // message => bytes
  #unary; // (method, request) => answer
  #stream;
  #token;
  #graceMs;
  #maxSent;
  #queue = []; // steps that are not sent yet
  #sent = []; // steps that are unanswered
  #nextSequence = 1;
  #lastSequence = 0; // of the last answer
  #connected = true;
  #closing = false;
  #halfClosed = false;
  #ended; // SessionEndedError
  #finished;
  #finish;

  constructor({begin, encode, unary, stream, opened, maxUnanswered}) {
    this.#begin = begin;
    this.#encode = encode;
    this.#unary = unary;
    this.#token = opened.session;
    this.#graceMs = opened.resumeGraceMs;
    this.#maxSent = maxUnanswered;
    this.#finished = new Promise((resolve) => (this.#finish = resolve));
    this.#listen(stream);
  }

  // Whoever has it can do with the session what this client can: keep it secret.
  get token() {
    return this.#token;
  }

  // How long the session outlives a lost stream, as the server grants it.
  get resumeGraceMs() {
    return this.#graceMs;
  }

  // How many steps may be sent and unanswered; others wait in this process.
  get maxUnanswered() {
    return this.#maxSent;
  }

  // Resolves when the session has ended, to the SessionEndedError that says why.
  get ended() {
    return this.#finished;
  }

  // Sends a step; resolves to its answer. Steps go out in the order of the calls, whether the
  // answers of earlier ones are there or not: to pipeline, call again before awaiting. `sequence`
  // is set here. Rejects with a RepriseError for a refused step, after which steps that were
  // already sent are refused too (`behind` names it) and the next one is welcome; with
  // SessionEndedError; and with what converting the request throws.
  step(request) {
    return new Promise((resolve, reject) => {
      if (this.#ended || this.#closing) {
        reject(this.#ended ?? new SessionEndedError(status.OK, 'session: closed'));
        return;
      }
      this.#queue.push({request, resolve, reject});
      this.#pump();
    });
  }

  // The answers to `steps` (an iterable or async iterable), in order, with up to `depth` of them in
  // flight: a step is taken from `steps` before the answers of up to depth - 1 steps ahead of it
  // are known. Throws RangeError for a depth below 1; otherwise as `step`.
  async *run(steps, {depth = 2} = {}) {
    if (!(depth >= 1)) throw new RangeError(`depth: got ${depth}, allowed: at least 1`);
    const waiting = [];
    for await (const request of steps) {
      const answer = this.step(request);
      answer.catch(() => {}); // whoever takes it sees the error
      waiting.push(answer);
      if (waiting.length >= depth) yield await waiting.shift();
    }
    while (waiting.length > 0) yield await waiting.shift();
  }

  // KV blocks from the pool, all or none. Rejects with ResourceExhaustedError, which says asked and
  // free.
  async allocate(count) {
    return (await this.#unary('allocate', {session: this.#token, count})).blocks;
  }

  // Gives blocks back, all or none; a resident row's table may name none of them.
  async free(blocks) {
    await this.#unary('free', {session: this.#token, blocks});
  }

  // What docs/kv.md says of KV blocks. All of them reject with what that page lists, typed.

  // Full blocks, for sessions of the same identity to read; nobody writes them any more.
  async shareBlocks(name, blocks) {
    await this.#unary('shareBlocks', {session: this.#token, name, blocks});
  }

  // What is shared under a name, for this session's rows.
  async adoptBlocks(name) {
    return (await this.#unary('adoptBlocks', {session: this.#token, name})).blocks;
  }

  // The session does not use what is shared under a name any more.
  async releaseBlocks(name) {
    await this.#unary('releaseBlocks', {session: this.#token, name});
  }

  // Contents, as this session's steps have written them: {layout, parts}.
  async readBlocks(ranges) {
    return this.#unary('readBlocks', {session: this.#token, ranges});
  }

  // What `readBlocks` answered, into blocks of this session.
  async writeBlocks(layout, parts) {
    await this.#unary('writeBlocks', {session: this.#token, layout, parts});
  }

  // Moves blocks to swap space; resolves to what they are called there.
  async swapOut(blocks) {
    return (await this.#unary('swapOut', {session: this.#token, blocks})).swapped;
  }

  // Moves swapped blocks back; resolves to their ids in the pool.
  async swapIn(swapped) {
    return (await this.#unary('swapIn', {session: this.#token, swapped})).blocks;
  }

  // Copies what a row carries beside its KV to swap space, for AddRow's swappedState.
  swapOutState(row) {
    return this.#unary('swapOutState', {session: this.#token, row});
  }

  // Forgets swapped blocks, and states of rows.
  async freeSwapped(swapped, swappedStates = []) {
    await this.#unary('freeSwapped', {session: this.#token, swapped, swappedStates});
  }

  // Copies blocks to where other servers of the machine take them; resolves to a ticket for each.
  async exportBlocks(blocks) {
    return (await this.#unary('exportBlocks', {session: this.#token, blocks})).tickets;
  }

  // Takes another server's copies into blocks of this session; resolves to the tokens in each.
  async importBlocks(blocks, tickets) {
    return (await this.#unary('importBlocks', {session: this.#token, blocks, tickets})).numTokens;
  }

  // The copies that this session exported are not needed any more.
  async freeExported(tickets) {
    await this.#unary('freeExported', {session: this.#token, tickets});
  }

  // Waits for the answers to all steps and ends the session: rows and blocks are gone. Rejects with
  // SessionEndedError where it ended otherwise.
  async close() {
    this.#closing = true;
    this.#pump();
    const why = await this.#finished;
    if (why.code !== status.OK) throw why;
  }

  // ---- sending ----

  #pump() {
    while (this.#connected && this.#queue.length > 0 && this.#sent.length < this.#maxSent) {
      this.#send(this.#queue.shift());
    }
    if (!this.#closing || this.#halfClosed || !this.#connected || this.#queue.length > 0) return;
    this.#halfClosed = true;
    this.#stream.end();
  }

  #send({request, resolve, reject}) {
    const sequence = this.#nextSequence;
    let bytes;
    try {
      bytes = this.#encode({step: {...request, sequence}});
    } catch (error) {
      reject(error);
      return;
    }
    ++this.#nextSequence;
    this.#sent.push({sequence, bytes, resolve, reject});
    this.#stream.write(bytes);
  }

  // ---- receiving ----

  #listen(stream) {
    this.#stream = stream;
    stream.listen({
      message: (message) => this.#take(message),
      end: (end) => this.#streamEnded(end),
    });
  }

  #take(message) {
    if (this.#ended) return;
    const body = message.step ?? message.error;
    if (!body || body.sequence !== this.#sent[0]?.sequence) {
      this.#stream.cancel();
      const what = `got an answer that no step waits for: ${message.message}`;
      this.#end(errorOfCode(status.INTERNAL, what));
      return;
    }
    const sent = this.#sent.shift();
    if (message.step) {
      this.#lastSequence = body.sequence;
      sent.resolve(body);
    } else {
      const {sequence} = body;
      if (sent.behind === undefined) {
        // The number is free again; what was sent behind it is refused as well.
        this.#nextSequence = sequence;
        for (const other of this.#sent) other.behind ??= sequence;
      }
      sent.reject(errorOfCode(body.code, body.message, {sequence, behind: sent.behind}));
    }
    this.#pump();
  }

  #streamEnded(end) {
    if (this.#ended) return;
    if (end.code === status.OK) {
      this.#end({code: status.OK, message: 'closed'});
      return;
    }
    const lost = errorOfCall(end);
    if (this.#graceMs === 0 || this.#halfClosed || !isLost(lost)) this.#end(lost);
    else this.#resume(lost).catch((error) => this.#end(errorOfCall(error)));
  }

  #end(why) {
    if (this.#ended) return;
    this.#ended = new SessionEndedError(why.code, `session: ${why.message}`);
    this.#connected = false;
    for (const {reject} of [...this.#sent, ...this.#queue]) reject(this.#ended);
    this.#sent = [];
    this.#queue = [];
    this.#finish(this.#ended);
  }

  // ---- resuming ----

  // Goes on with the session on a new stream. Rejects with why it cannot.
  async #resume(lost) {
    this.#connected = false;
    this.#forgetRefused();
    const deadline = performance.now() + this.#graceMs;
    const resume = {session: this.#token, lastSequence: this.#lastSequence};
    for (let delayMs = firstDelayMs; ; delayMs = Math.min(2 * delayMs, longestDelayMs)) {
      try {
        const {stream, answer} = await this.#begin({resume});
        this.#goOn(stream, answer.resumed);
        return;
      } catch (error) {
        if (!isLost(error)) throw error;
      }
      if (this.#ended) return;
      if (performance.now() + delayMs > deadline) throw lost;
      await sleep(delayMs);
    }
  }

  // Sends again what has not run; answers to what has are on their way.
  #goOn(stream, {lastSequence}) {
    if (this.#ended) {
      stream.cancel();
      return;
    }
    if (this.#sent.length === 0) this.#nextSequence = lastSequence + 1;
    for (const {sequence, bytes} of this.#sent) {
      if (sequence > lastSequence) stream.write(bytes);
    }
    this.#connected = true;
    this.#listen(stream);
    this.#pump();
  }

  // Steps behind a refused one are refused in any case, and errors are not kept.
  #forgetRefused() {
    for (const {behind, reject, sequence} of this.#sent) {
      if (behind === undefined) continue;
      const message = `step: sent behind step ${behind}, which was refused`;
      const refused = status.FAILED_PRECONDITION;
      reject(new FailedPreconditionError(refused, message, {sequence, behind}));
    }
    this.#sent = this.#sent.filter(({behind}) => behind === undefined);
  }
}
