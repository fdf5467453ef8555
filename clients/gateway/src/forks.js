// SPDX-License-Identifier: Apache-2.0
// Forks: the choices of one prompt where rows carry state beside their KV, which no block holds.
//
// The first choice that is admitted leads: it computes the prompt up to its last two tokens, and
// waits for the answer, since the server copies no row that has steps in flight. In the step in
// which it goes on the others are added as copies of it, and compute the last two tokens
// themselves. Those that find no row or no blocks then compute the prompt again, one of them for
// those that find room when it is done.

const LEAST_TOKENS = 2; // of a chunk: one alone would be computed as a sampled one is

export class Forks {
  #isOn;
  #leaders = new Map(); // by group

  constructor(isOn) {
    this.#isOn = isOn;
  }

  // The row that a generation waits for; undefined: for none.
  leaderOf({group}) {
    return this.#leaders.get(group);
  }

  // Makes a generation that has just become resident lead those of its group that wait.
  begin(generation, waiting) {
    const {group, prompt} = generation;
    const forkAt = prompt.length - LEAST_TOKENS;
    if (!this.#isOn || group === undefined || forkAt < LEAST_TOKENS) return;
    if (waiting.some((other) => other.group === group)) this.lead(generation, forkAt);
  }

  // It leads with `forkAt` tokens, or with 0 no longer.
  lead(generation, forkAt) {
    const {group} = generation;
    generation.forkAt = forkAt;
    if (forkAt > 0) this.#leaders.set(group, generation);
    else if (this.#leaders.get(group) === generation) this.#leaders.delete(group);
  }

  // The step that is planned next may copy it.
  isReady({forkAt, context, inFlight, ended, preempted}) {
    return forkAt > 0 && context === forkAt && inFlight === 0 && !ended && !preempted;
  }

  // Up to where a resident row may compute its input in the step that is planned.
  endOf(generation) {
    const {forkAt, context, input} = generation;
    if (forkAt === 0 || this.isReady(generation)) return input;
    return Math.max(forkAt, context);
  }
}
