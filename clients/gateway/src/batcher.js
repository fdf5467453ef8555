// SPDX-License-Identifier: Apache-2.0
// Batcher: the scheduling policy, continuous batching. It decides what the next step runs and takes
// in what came out of it. It knows no transport and no clock.
//
// Every step runs all rows that decode, and spends what is left of its tokens on prompts, oldest
// first, cut into chunks where they do not fit. A request is admitted when the blocks of its whole
// prompt are there. A row that cannot get a block to grow preempts the youngest: that one is
// dropped, and computed again from its prompt and the tokens it had.
//
// Whole blocks at the begin of a prompt that were computed before are shared, not computed again. A
// request waits while a row computes what it could share; others pass it by. Where rows carry
// state, choices of one prompt begin as copies of the one that computes it (forks.js).
//
// Steps are planned before the answers to earlier ones are known. A length is known ahead, so no
// row is planned beyond it; a stop is not, and tokens that come after it are thrown away. A row
// that keeps to a grammar waits until its last token is known, which says what may come next. A row
// is dropped once no step in flight names it: so a refused step can be undone exactly.
import {rowsOf} from 'reprise-client';

import {ApiError} from './api_error.js';
import {Forks} from './forks.js';
import {PrefixCache} from './prefix_cache.js';

export class Batcher {
  #pool;
  #prefixes;
  #blockSize;
  #stepTokens;
  #maxRows;
  #rowLimit;
  #waiting = []; // by id
  #resident = []; // by id
  #byRow = new Map();
  #pendingDrops = []; // rows that the next step drops
  #nextRow = 1;
  #starved = false; // in this plan a row could not grow
  #maxMaskBytes;
  #maskRoom = 0; // bytes of masks that the step being planned may still take along
  #maxCopies;
  #forks;

  // pool: a BlockPool. stepTokens: of one step, at least maxRows. maxMaskBytes: of the masks of one
  // step together, where it has more than one. maxPrefixBlocks: kept for prompts to come; 0:
  // nothing is shared. maxCopies: blocks that one step may copy. carriesState: rows of the model
  // carry state beside their KV, which no block holds: then prompts share nothing, and where
  // maxPrefixBlocks is not 0, choices of one prompt are forked.
  constructor({
    pool,
    blockSize,
    stepTokens,
    maxRows,
    maxMaskBytes = Infinity,
    maxPrefixBlocks = 0,
    maxCopies = 0,
    carriesState = false,
  }) {
    this.#maxCopies = maxCopies;
    this.#forks = new Forks(carriesState && maxPrefixBlocks > 0 && maxCopies > 0);
    this.#prefixes = new PrefixCache({blockSize, maxUnused: carriesState ? 0 : maxPrefixBlocks});
    this.#maxMaskBytes = maxMaskBytes;
    this.#pool = pool;
    this.#blockSize = blockSize;
    this.#stepTokens = stepTokens;
    this.#maxRows = this.#rowLimit = maxRows;
  }

  get numWaiting() {
    return this.#waiting.length;
  }

  get numResident() {
    return this.#resident.length;
  }

  // No row is resident or about to be dropped: blocks may be given back.
  get isEmpty() {
    return this.#resident.length === 0 && this.#pendingDrops.length === 0;
  }

  get generations() {
    return [...this.#waiting, ...this.#resident];
  }

  // Blocks that are kept for prompts to come.
  get numPrefixBlocks() {
    return this.#prefixes.numUnused;
  }

  // Of them, those that the next plan could take: not what the first that waits shares.
  get numEvictable() {
    const [generation] = this.#waiting;
    const found = (generation && this.#findPrefix(generation)) ?? [];
    return this.#prefixes.numUnused - found.filter(({users}) => users === 0).length;
  }

  // Makes all that are kept free.
  forgetPrefixes() {
    this.#pool.release(this.#prefixes.evict(Infinity));
  }

  add(generation) {
    const after = this.#waiting.findIndex(({id}) => id > generation.id);
    this.#waiting.splice(after < 0 ? this.#waiting.length : after, 0, generation);
  }

  // Forgets a generation that has ended before it was admitted.
  remove(generation) {
    this.#waiting = this.#waiting.filter((other) => other !== generation);
  }

  // The server had no room for so many rows as were planned: tries half of them, or stays with
  // those that are resident.
  limitRows(planned) {
    this.#rowLimit = Math.max(this.#resident.length, Math.floor(planned / 2));
  }

  // One row more, after a while. False: there is no limit any more.
  raiseRowLimit() {
    this.#rowLimit = Math.min(this.#maxRows, this.#rowLimit + 1);
    return this.#rowLimit < this.#maxRows;
  }

  // Blocks that the next plan could use.
  get blocksWanted() {
    let count = 0;
    for (const generation of this.#resident) {
      const missing = this.#blocksFor(generation.context + 1) - generation.blocks.length;
      if (generation.continues) count += Math.max(0, missing);
    }
    if (this.#waiting.length > 0 && this.#resident.length < this.#rowLimit) {
      const [generation] = this.#waiting;
      const found = this.#forks.leaderOf(generation) ? undefined : this.#findPrefix(generation);
      if (found) count += this.#blocksToAdmit(generation) - found.length;
    }
    return count;
  }

  // Blocks beside them for those that wait to begin as copies of a row, and find rows.
  get blocksForForks() {
    let count = 0;
    let rows = this.#rowLimit - this.#resident.length;
    for (const generation of this.#waiting) {
      const leader = this.#forks.leaderOf(generation);
      if (leader && --rows >= 0) count += this.#blocksToFork(generation, leader);
    }
    return count;
  }

  // The next step: {request, flight}, or undefined where there is nothing to do now. `flight` is
  // for `apply` or `undo`, which take flights in the order, or in reverse order, of their plans.
  // flush: a step may consist of drops alone.
  plan({flush}) {
    const flight = {before: new Map(), drop: [], copied: []};
    const request = {add: [], append: [], masks: [], chunks: [], continueRows: [], copyBlocks: []};
    request.isolateBadRows = true;
    this.#starved = false;
    this.#maskRoom = this.#maxMaskBytes;
    this.#retireRows();
    this.#planContinues(request, flight);
    const budget = this.#stepTokens - request.continueRows.length;
    if (!this.#starved) {
      this.#admitForks(request, flight);
      this.#admit(budget, request, flight);
    }
    this.#planChunks(budget, request, flight);
    const runs = request.continueRows.length > 0 || request.chunks.length > 0;
    if (!runs && !(flush && this.#pendingDrops.length > 0)) return undefined;
    if (request.copyBlocks.length === 0) delete request.copyBlocks;
    const traceId = traceOf(flight.before.keys());
    if (traceId) request.traceId = traceId;
    request.drop = flight.drop = this.#pendingDrops;
    this.#pendingDrops = [];
    return {request, flight};
  }

  // Takes in the answer to the oldest flight. Throws Error for one that does not fit to it.
  apply(flight, answer) {
    for (const {row, message} of answer.rowErrors) {
      const generation = this.#byRow.get(row);
      if (!generation) continue;
      this.#prefixes.discard(generation.prefix.slice(generation.numShared));
      generation.end('error', new ApiError(500, `the step service: ${message}`));
    }
    for (const result of rowsOf(answer)) {
      const generation = this.#byRow.get(result.row);
      if (!generation) throw new Error(`got a result for row ${result.row}, which is none of ours`);
      if (!generation.ended) this.#takeResult(generation, result);
    }
    for (const generation of flight.before.keys()) --generation.inFlight;
    this.#letGo(flight);
  }

  // Blocks that the flight copies are not needed for it any more.
  #letGo({copied}) {
    for (const prefix of copied) this.#pool.release(this.#prefixes.release([prefix]));
  }

  // Takes back a flight that was refused, as if it had never been planned.
  undo(flight) {
    this.#pendingDrops.unshift(...flight.drop);
    for (const [generation, before] of flight.before) {
      --generation.inFlight;
      this.#markReady(generation, before.row === 0 ? 0 : before.context);
      if (before.row === 0) this.#evict(generation);
      Object.assign(generation, before);
      this.#forks.lead(generation, before.forkAt);
    }
    this.#letGo(flight);
  }

  // ---- rows that leave ----

  #retireRows() {
    for (const generation of [...this.#resident]) {
      const {ended, preempted, inFlight} = generation;
      if ((ended || preempted) && inFlight === 0) this.#retire(generation);
    }
  }

  #retire(generation) {
    this.#pendingDrops.push(generation.row);
    this.#evict(generation);
  }

  // The server does not have the row, or is told in the next step; its blocks are free for it.
  #evict(generation) {
    this.#forks.lead(generation, 0);
    this.#byRow.delete(generation.row);
    this.#resident = this.#resident.filter((other) => other !== generation);
    this.#pool.release(generation.blocks.slice(generation.prefix.length));
    this.#pool.release(this.#prefixes.release(generation.prefix));
    generation.blocks = [];
    generation.prefix = [];
    generation.numShared = 0;
    generation.row = 0;
    generation.preempted = false;
    if (!generation.ended) this.add(generation);
  }

  // One at a time: while one is still in flight, whoever starves waits for its blocks.
  #preemptYoungest() {
    if (this.#resident.some(({preempted}) => preempted)) return;
    const victim = [...this.#resident].reverse().find(({ended}) => !ended);
    if (!victim) return;
    victim.preempted = true;
    if (victim.inFlight === 0) this.#retire(victim);
  }

  // ---- rows that run ----

  #blocksFor(tokens) {
    return Math.ceil(tokens / this.#blockSize);
  }

  // Notes that the step being planned names the row.
  #touch(generation, flight) {
    if (flight.before.has(generation)) return;
    const {row, input, context, samples, blocksSent, maskSent, forkAt} = generation;
    flight.before.set(generation, {row, input, context, samples, blocksSent, maskSent, forkAt});
    ++generation.inFlight;
  }

  #planContinues(request, flight) {
    for (const generation of [...this.#resident]) {
      if (generation.row === 0 || !generation.continues) continue; // or preempted just now
      const mask = generation.matcher?.mask;
      const isNew = mask !== generation.maskSent;
      if (isNew && !this.#hasMaskRoom(mask)) continue;
      if (!this.#grow(generation)) continue;
      this.#touch(generation, flight);
      const needed = this.#blocksFor(++generation.context);
      ++generation.samples;
      if (needed > generation.blocksSent) {
        const blocks = generation.blocks.slice(generation.blocksSent, needed);
        request.append.push({row: generation.row, blocks});
        generation.blocksSent = needed;
      }
      if (isNew) {
        request.masks.push({row: generation.row, allowedTokens: mask});
        generation.maskSent = mask;
        this.#maskRoom -= mask.length;
      }
      request.continueRows.push(generation.row);
    }
  }

  // One mask always has.
  #hasMaskRoom(mask) {
    return this.#maskRoom === this.#maxMaskBytes || mask.length <= this.#maskRoom;
  }

  // True where the row has blocks for one token more.
  #grow(generation) {
    const missing = this.#blocksFor(generation.context + 1) - generation.blocks.length;
    if (missing <= 0) return true;
    let taken = this.#take(missing);
    if (!taken) {
      this.#preemptYoungest();
      if (generation.row !== 0) taken = this.#take(missing);
    }
    this.#starved ||= !taken;
    if (taken) generation.blocks.push(...taken);
    return taken !== undefined;
  }

  // Free blocks, or else those that are kept for prompts to come; undefined: there are too few.
  #take(count) {
    const missing = count - this.#pool.size;
    if (missing > this.#prefixes.numUnused) return undefined;
    this.#pool.release(this.#prefixes.evict(missing));
    return this.#pool.take(count);
  }

  // What can be shared of a prompt, or undefined while a row computes more of it. Two tokens are
  // left to compute: one alone would be computed as a sampled one is.
  #findPrefix({prompt}) {
    return this.#prefixes.find(prompt, Math.floor((prompt.length - 2) / this.#blockSize));
  }

  // Others may share what the row has computed with `context` tokens, in later steps.
  #markReady({prefix, numShared}, context) {
    for (let i = numShared; i < prefix.length; ++i) {
      prefix[i].isReady = (i + 1) * this.#blockSize <= context;
    }
  }

  // One token more than the prompt, so that a row that is admitted is not at once one that starves.
  #blocksToAdmit({prompt, tokens, finalContext}) {
    return this.#blocksFor(Math.min(prompt.length + tokens.length + 1, finalContext));
  }

  #blocksToFork(generation, {forkAt}) {
    return this.#blocksToAdmit(generation) - Math.floor(forkAt / this.#blockSize);
  }

  // What waits for a row that is ready now begins as a copy of it, as far as there is room.
  #admitForks(request, flight) {
    for (const generation of [...this.#waiting]) {
      const leader = this.#forks.leaderOf(generation);
      if (!leader || !this.#forks.isReady(leader)) continue;
      const mask = generation.matcher?.mask;
      if (this.#resident.length >= this.#rowLimit || (mask && !this.#hasMaskRoom(mask))) return;
      const copied = this.#takeForked(generation, leader, request);
      if (copied === undefined) return;
      this.#makeResident(generation, copied, mask, flight);
      request.add.push({...rowToAdd(generation), forkOf: leader.row});
    }
  }

  // Blocks for a copy of `leader`: whole ones are shared, the one behind is copied. Returns how
  // many tokens of that are the row's; undefined: too few blocks, or copies in this step.
  #takeForked(generation, leader, request) {
    const {forkAt} = leader;
    const copied = forkAt % this.#blockSize;
    if (copied > 0 && request.copyBlocks.length >= 2 * this.#maxCopies) return undefined;
    const own = this.#take(this.#blocksToFork(generation, leader));
    if (!own) return undefined;
    const shared = leader.blocks.slice(0, Math.floor(forkAt / this.#blockSize));
    if (leader.prefix.length === 0) leader.prefix = this.#prefixes.share(shared);
    leader.numShared = shared.length;
    this.#prefixes.use(leader.prefix);
    generation.prefix = [...leader.prefix];
    generation.numShared = shared.length;
    generation.blocks = [...shared, ...own];
    if (copied > 0) request.copyBlocks.push(leader.blocks[shared.length], own[0]);
    return copied;
  }

  // Rows are left for those that wait to begin as copies of a row.
  #admit(budget, request, flight) {
    let left = budget;
    let numForks = 0;
    for (const {input, context} of this.#resident) left -= Math.max(0, input - context);
    for (const generation of [...this.#waiting]) {
      if (left <= 0 || this.#resident.length + numForks >= this.#rowLimit) return;
      if (this.#forks.leaderOf(generation)) {
        ++numForks;
        continue;
      }
      const mask = generation.matcher?.mask;
      if (mask && !this.#hasMaskRoom(mask)) return;
      const found = this.#findPrefix(generation);
      if (!found) continue;
      if (!this.#takeBlocks(generation, found)) return;
      const copied = this.#copyPart(generation, found, request, flight);
      this.#makeResident(generation, copied, mask, flight);
      const hasRoom = this.#resident.length < this.#rowLimit;
      if (hasRoom) this.#forks.begin(generation, this.#waiting);
      request.add.push(rowToAdd(generation));
      left -= generation.input - generation.context;
    }
  }

  // Blocks for the prompt, the first of them shared. False: there are too few.
  #takeBlocks(generation, found) {
    this.#prefixes.use(found); // lest they are taken
    const taken = this.#take(this.#blocksToAdmit(generation) - found.length);
    if (!taken) {
      this.#pool.release(this.#prefixes.release(found));
      return false;
    }
    generation.blocks = [...found.map(({block}) => block), ...taken];
    generation.prefix = this.#prefixes.extend(found, generation.prompt, generation.blocks);
    generation.numShared = found.length;
    return true;
  }

  // A copy of a block that begins as the prompt goes on behind what is shared. Returns how many
  // tokens of it are the row's.
  #copyPart({prompt, blocks}, found, request, flight) {
    if (request.copyBlocks.length >= 2 * this.#maxCopies) return 0;
    const part = this.#prefixes.findPart(found, prompt, prompt.length - 2);
    if (!part) return 0;
    this.#prefixes.use([part.prefix]); // until the step has run
    flight.copied.push(part.prefix);
    request.copyBlocks.push(part.prefix.block, blocks[found.length]);
    return part.count;
  }

  #makeResident(generation, copied, mask, flight) {
    this.remove(generation);
    this.#touch(generation, flight);
    generation.row = this.#nextRow++;
    generation.blocksSent = generation.blocks.length;
    generation.input = generation.prompt.length + generation.tokens.length;
    generation.context = generation.numShared * this.#blockSize + copied;
    if (generation.tokens.length === 0) generation.cachedTokens = generation.context;
    generation.samples = generation.tokens.length;
    generation.maskSent = mask;
    this.#maskRoom -= mask?.length ?? 0;
    this.#resident.push(generation);
    this.#resident.sort((a, b) => a.id - b.id);
    this.#byRow.set(generation.row, generation);
  }

  #planChunks(budget, request, flight) {
    let left = budget;
    for (const generation of this.#resident) {
      const {input, context, row, preempted, ended, forkAt} = generation;
      if (left === 0) return;
      const missing = this.#forks.endOf(generation) - context;
      if (preempted || ended || missing <= 0) continue;
      const count = chunkOf(missing, left, request.chunks.length === 0);
      if (count === 0) return;
      this.#touch(generation, flight);
      const goesOn = forkAt > 0 && context === forkAt; // those that found room are copies of it
      if (goesOn) this.#forks.lead(generation, 0);
      const sample = context + count === input;
      const tokens = Array.from({length: count}, (_, i) => generation.inputToken(context + i));
      request.chunks.push({row, tokens, sample});
      generation.context += count;
      this.#markReady(generation, generation.context);
      generation.samples += sample ? 1 : 0;
      left -= count;
    }
  }

  // ---- results ----

  #takeResult(generation, result) {
    for (let i = generation.numShared; i < generation.prefix.length; ++i) {
      const prefix = generation.prefix[i];
      prefix.isWritten ||= (i + 1) * this.#blockSize <= result.contextLength;
    }
    if (result.finishReason === 'FINISH_REASON_NO_CANDIDATE') {
      const why = 'no token can be sampled: every logit is NaN or minus infinity';
      generation.end('error', new ApiError(500, why));
      return;
    }
    if (result.token === undefined) return;
    generation.tokens.push(result.token);
    if (generation.onToken(result)) generation.end('stop');
    else if (result.finishReason === 'FINISH_REASON_STOP_TOKEN') generation.end('stop');
    else if (generation.tokens.length === generation.maxNewTokens) generation.end('length');
  }
}

// Tokens of a chunk, of `missing` ones, in a step with room for `left`. One token alone is computed
// as a sampled one is, which rounds otherwise: none is cut off or left alone but where there is no
// room for more, and then only of a row whose chunk is the first of its step, so that it goes on.
function chunkOf(missing, left, isFirst) {
  if (missing <= left) return missing;
  const cutsOne = left === 1 || (left === 2 && missing === 3);
  if (cutsOne) return isFirst ? left : 0;
  return missing - left === 1 ? left - 1 : left;
}

// A step names one trace: of those of its rows, that of the row that was added last.
function traceOf(generations) {
  const traced = [...generations].filter(({traceId}) => traceId);
  return traced.sort((a, b) => b.row - a.row)[0]?.traceId;
}

function rowToAdd(generation) {
  const {row, blocks, prompt, context, hasPenalties, maskSent} = generation;
  const sampling = {...generation.sampling};
  if (maskSent) sampling.allowedTokens = maskSent;
  const added = {row, blocks, contextLength: context, sampling};
  if (!hasPenalties) return added;
  // Tokens behind the prompt's were sampled before the row was preempted.
  return {...added, promptLength: prompt.length, history: prompt.slice(0, context)};
}
