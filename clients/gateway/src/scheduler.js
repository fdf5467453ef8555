// SPDX-License-Identifier: Apache-2.0
// Scheduler: keeps one session of the step service busy with what the batcher plans.
//
// Up to `depth` steps are in flight. A session that is lost for good is replaced by another one:
// rows are computed again there from their prompts and the tokens they had.
import {setTimeout as sleep} from 'node:timers/promises';

import {ResourceExhaustedError, SessionEndedError} from 'reprise-client';

import {ApiError} from './api_error.js';
import {Batcher} from './batcher.js';
import {BlockPool} from './block_pool.js';

const DEPTH = 2;
const RETRY_MS = 100; // after a refusal for want of rows, and between tries to reach the server
const STARVING_MS = 20; // how soon to look again for blocks
const RESUME_GRACE_MS = 20000;

function overloaded(message) {
  return new ApiError(503, message, {code: 'overloaded'});
}

// KV blocks that a session may hold.
function maxBlocksOf({limits, pool}) {
  return limits.maxSessionBlocks || pool.numBlocks - 1; // 0: not said
}

export class Scheduler {
  #client;
  #options;
  #described;
  #session;
  #pool;
  #batcher;
  #flights = []; // in flight, oldest first
  #refused = []; // of the flights since the first that was refused: {flight, error}
  #failure; // what ended the session, or made it useless
  #nextId = 1;
  #stopped = false;
  #saidNothingIsShared = false;
  #news = false; // since the loop last looked
  #wake = () => {};
  #raise; // timer
  #running;

  // client: reprise-client's. stepTokens, maxRows: of a step; 0: what the server allows. maxQueue:
  // generations that wait. queueTimeoutMs: how long one waits to be admitted. prefixBlocks: kept
  // for prompts that begin alike; 0: none; undefined: half of what a session may hold.
  // prefixMs: for how long after the last request. metrics: Metrics. log(text).
  constructor(client, {stepTokens = 0, maxRows = 0, ...more}) {
    this.#client = client;
    this.#options = {stepTokens, maxRows, ...more};
  }

  // Rejects with reprise-client's errors where the server does not answer.
  async start() {
    await this.#open();
    this.#running = this.#run();
  }

  // What the server says of itself.
  get described() {
    return this.#described;
  }

  // Tokens that a prompt and its answer may have together.
  get maxTokens() {
    const {limits, pool} = this.#described;
    return Math.min(limits.maxContextLength, maxBlocksOf(this.#described) * pool.blockSize);
  }

  // Generations that may wait.
  get maxQueue() {
    return this.#options.maxQueue;
  }

  // {waiting, running}: generations without and with a row.
  get numAnswers() {
    const left = this.#batcher.generations.filter(({ended}) => !ended);
    const running = left.filter(({row}) => row !== 0).length;
    return {waiting: left.length - running, running};
  }

  get isConnected() {
    return this.#failure === undefined;
  }

  // Throws ApiError where `count` generations cannot be queued now.
  checkRoom(count) {
    if (this.#stopped) throw overloaded('the gateway is stopping');
    const {numWaiting} = this.#batcher;
    if (numWaiting + count <= this.maxQueue) return;
    const got = `${count} answers while ${numWaiting} wait`;
    throw overloaded(`queue: got ${got}, allowed: ${this.maxQueue}`);
  }

  // Throws ApiError where the generation cannot be queued.
  submit(generation) {
    this.checkRoom(1);
    const vocabulary = this.#described.model.vocabSize;
    const wrong = generation.prompt.find((token) => token >= vocabulary);
    if (wrong !== undefined) {
      throw new ApiError(500, `the tokenizer gave token ${wrong}, allowed: below ${vocabulary}`);
    }
    generation.id = this.#nextId++;
    generation.deadline = performance.now() + this.#options.queueTimeoutMs;
    this.#options.metrics.submitted(generation);
    this.#batcher.add(generation);
    this.#notify();
  }

  // Nobody waits for the generation any more.
  cancel(generation) {
    generation.ended = true;
    this.#batcher.remove(generation);
    this.#notify();
  }

  // Finishes what was submitted, then ends the session.
  async stop() {
    this.#stopped = true;
    this.#notify();
    await this.#running;
  }

  // ---- sessions ----

  // A session, and a batcher for it that has what the one before had left.
  async #open() {
    const described = await this.#client.describe();
    const {limits, pool, buckets} = described;
    const options = {name: 'reprise-gateway', resumeGraceMs: RESUME_GRACE_MS};
    const session = await this.#client.openSession(options);
    this.#described = described;
    this.#session = session;
    this.#pool = new BlockPool(session);
    const capacities = buckets.filter(({kind}) => kind === 'mixed').map(({capacity}) => capacity);
    const most = Math.max(1, ...capacities);
    const stepTokens = Math.min(this.#options.stepTokens || most, most);
    const maxRows = Math.min(this.#options.maxRows || limits.maxRows, limits.maxRows, stepTokens);
    const {blockSize} = pool;
    const left = this.#batcher?.generations.filter(({ended}) => !ended) ?? [];
    const maxMaskBytes = Math.floor(limits.maxMessageBytes / 2);
    const maxPrefixBlocks = this.#options.prefixBlocks ?? Math.floor(maxBlocksOf(described) / 2);
    const {maxCopies} = limits;
    const carriesState = limits.rowStateBytes > 0;
    if (carriesState) this.#sayNothingIsShared();
    const sizes = {blockSize, stepTokens, maxRows, maxMaskBytes, maxPrefixBlocks, maxCopies};
    this.#batcher = new Batcher({pool: this.#pool, ...sizes, carriesState});
    for (const generation of left) this.#batcher.add(generation);
    this.#flights = [];
    this.#refused = [];
    this.#failure = undefined;
    session.ended.then((why) => this.#fail(session, why));
  }

  // Once, where sharing was not turned off.
  #sayNothingIsShared() {
    if (this.#saidNothingIsShared || this.#options.prefixBlocks === 0) return;
    this.#saidNothingIsShared = true;
    const why = 'rows of this model carry state beside their KV';
    this.#options.log(`${why}: prompts of different requests share nothing`);
  }

  async #run() {
    for (;;) {
      try {
        await this.#drive();
        return;
      } catch (error) {
        this.#failure ??= error;
        this.#options.log(`the session is lost: ${error.message}`);
      }
      // Its answers are of no use any more. If it lives, its rows and blocks are free with this.
      this.#session.close().catch(() => {});
      this.#session = undefined;
      if (!(await this.#reopen())) return;
    }
  }

  // What was resident waits again. False: there is no server, and the gateway stops.
  async #reopen() {
    const deadline = performance.now() + this.#options.queueTimeoutMs;
    for (const generation of this.#batcher.generations) {
      const nothing = {row: 0, blocks: [], blocksSent: 0, prefix: [], numShared: 0, inFlight: 0};
      Object.assign(generation, nothing, {preempted: false, forkAt: 0, deadline});
    }
    for (;;) {
      try {
        await this.#open();
        this.#options.log(`a new session is open; ${this.#batcher.numWaiting} requests go on`);
        return true;
      } catch (error) {
        this.#expire(`the step service cannot be reached: ${error.message}`);
        if (this.#stopped && this.#batcher.generations.every(({ended}) => ended)) return false;
      }
      await sleep(RETRY_MS);
    }
  }

  #fail(session, error) {
    if (session !== this.#session) return;
    this.#failure ??= error;
    this.#notify();
  }

  // ---- steps ----

  async #drive() {
    for (;;) {
      this.#news = false;
      if (this.#failure) throw this.#failure;
      this.#expire('the step service has no room for the request');
      if (this.#refused.length > 0 && this.#flights.length === 0) this.#undo();
      if (await this.#sendNext()) continue;
      if (this.#flights.length === 0 && this.#batcher.isEmpty) {
        await this.#pool.giveBack();
        if (this.#pool.mayLeak && !this.#stopped) throw new Error('blocks were lost on the way');
        if (this.#stopped && this.#batcher.numWaiting === 0) {
          const {ended} = this.#session;
          await this.#session.close();
          await ended;
          return;
        }
      }
      await this.#somethingNew();
    }
  }

  async #sendNext() {
    if (this.#flights.length >= DEPTH || this.#refused.length > 0) return false;
    const kept = () => this.#batcher.numEvictable;
    await this.#pool.reserve(this.#batcher.blocksWanted, kept, this.#batcher.blocksForForks);
    if (this.#refused.length > 0) return false; // meanwhile
    const planned = this.#batcher.plan({flush: this.#flights.length === 0});
    if (!planned) return false;
    const {request, flight} = planned;
    flight.sentAt = performance.now();
    this.#flights.push(flight);
    const session = this.#session;
    session.step(request).then(
      (answer) => this.#take(session, answer),
      (error) => this.#takeError(session, error),
    );
    return true;
  }

  // Resolves when a step was answered, a request came or went, or time has passed for one, or for
  // blocks that are kept.
  #somethingNew() {
    if (this.#news) return undefined;
    return new Promise((resolve) => {
      const {numWaiting, numResident, numPrefixBlocks} = this.#batcher;
      const busy = numWaiting > 0 || numResident > 0;
      const forget = () => {
        this.#batcher.forgetPrefixes();
        resolve();
      };
      let timer;
      if (this.#flights.length === 0) {
        if (busy) timer = setTimeout(resolve, STARVING_MS);
        else if (numPrefixBlocks > 0) timer = setTimeout(forget, this.#options.prefixMs);
      }
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #notify() {
    this.#news = true;
    this.#wake();
  }

  #take(session, answer) {
    if (session !== this.#session) return;
    try {
      const flight = this.#flights.shift();
      const running = [...flight.before.keys()].filter(({ended}) => !ended);
      this.#batcher.apply(flight, answer);
      this.#options.metrics.stepAnswered(running, flight.sentAt);
      // Not before: a step that is refused leaves its rows waiting.
      for (const generation of flight.before.keys()) generation.deadline = Infinity;
      this.#notify();
    } catch (error) {
      this.#fail(session, error);
    }
  }

  #takeError(session, error) {
    if (session !== this.#session) return;
    if (error instanceof SessionEndedError) {
      this.#fail(session, error);
      return;
    }
    this.#refused.push({flight: this.#flights.shift(), error});
    this.#notify();
  }

  // All steps in flight are back, and from the first refused one on none of them ran.
  #undo() {
    const [{flight, error}] = this.#refused;
    const planned = this.#batcher.numResident;
    for (const refused of this.#refused.reverse()) this.#batcher.undo(refused.flight);
    this.#refused = [];
    if (error instanceof ResourceExhaustedError) {
      this.#batcher.limitRows(planned); // other sessions have the rest
      this.#raiseRowLimit();
      return;
    }
    if (flight.before.size === 0) throw error;
    for (const generation of flight.before.keys()) {
      generation.end('error', new ApiError(500, `the step service: ${error.message}`));
      this.#batcher.remove(generation);
    }
  }

  #raiseRowLimit() {
    clearTimeout(this.#raise);
    this.#raise = setTimeout(() => {
      if (this.#batcher.raiseRowLimit()) this.#raiseRowLimit();
      this.#notify();
    }, RETRY_MS);
    this.#raise.unref();
  }

  // Ends what has waited for too long.
  #expire(why) {
    const now = performance.now();
    for (const generation of this.#batcher.generations) {
      if (generation.row !== 0 || generation.ended) continue;
      if (generation.deadline === Infinity) {
        generation.deadline = now + this.#options.queueTimeoutMs; // was preempted
      } else if (now > generation.deadline) {
        this.#batcher.remove(generation);
        generation.end('error', overloaded(why));
      }
    }
  }
}
