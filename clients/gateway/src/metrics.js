// SPDX-License-Identifier: Apache-2.0
// Metrics of the gateway in Prometheus' text format. docs/clients.md says what each of them counts.
//
// Times of an answer are measured here, from what the scheduler tells: when it was submitted, and
// which steps with it were answered.
import {Counter, Gauge, Histogram, Registry} from 'prom-client';

const waits = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
const tokenTimes = [
  0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5,
];

export class Metrics {
  #registry = new Registry();
  #answers = new WeakMap(); // generation to {submittedAt, isAdmitted, tokens, firstTokenAt}

  #make(Kind, name, help, more = {}) {
    const registers = [this.#registry];
    return new Kind({name: `reprise_gateway_${name}`, help, registers, ...more});
  }

  #requests = this.#make(Counter, 'requests_total', 'HTTP requests that were answered.', {
    labelNames: ['route', 'code'],
  });
  #promptTokens = this.#make(Counter, 'prompt_tokens_total', 'Tokens of prompts.', {
    labelNames: ['source'],
  });
  #answerTokens = this.#make(Counter, 'answer_tokens_total', 'Tokens that were sampled.');
  #queueTime = this.#make(Histogram, 'queue_seconds', 'From an answer being asked to its row.', {
    buckets: waits,
  });
  #firstToken = this.#make(
    Histogram,
    'time_to_first_token_seconds',
    'From an answer being asked to its first token.',
    {buckets: waits},
  );
  #tokenTime = this.#make(
    Histogram,
    'time_per_output_token_seconds',
    'Of an answer, between two tokens on average.',
    {buckets: tokenTimes},
  );

  constructor() {
    for (const source of ['computed', 'cached']) this.#promptTokens.inc({source}, 0);
  }

  // numAnswers(): {waiting, running} now. isConnected(): whether there is a session.
  watch({numAnswers, isConnected}) {
    const gauge = (name, help, read) =>
      this.#make(Gauge, name, help, {
        collect() {
          this.set(read());
        },
      });
    gauge('answers_waiting', 'Answers that wait for a row.', () => numAnswers().waiting);
    gauge('answers_running', 'Answers that have a row.', () => numAnswers().running);
    gauge('connected', '1 while there is a session.', () => Number(isConnected()));
  }

  get contentType() {
    return this.#registry.contentType;
  }

  // Resolves to all of them.
  text() {
    return this.#registry.metrics();
  }

  // ---- what happens ----

  // code: the HTTP status.
  requestAnswered(route, code) {
    this.#requests.inc({route, code});
  }

  submitted(generation) {
    const submittedAt = performance.now();
    this.#answers.set(generation, {submittedAt, isAdmitted: false, tokens: 0});
  }

  // A step that was sent at `sentAt` was answered, and what came for these generations, which had
  // not ended before, was taken in.
  stepAnswered(generations, sentAt) {
    const now = performance.now();
    for (const generation of generations) {
      const answer = this.#answers.get(generation);
      if (!answer.isAdmitted) this.#queueTime.observe((sentAt - answer.submittedAt) / 1000);
      answer.isAdmitted = true;
      if (generation.tokens.length > answer.tokens) this.#takeTokens(generation, answer, now);
    }
  }

  #takeTokens({prompt, cachedTokens, tokens, ended}, answer, now) {
    if (answer.tokens === 0) {
      answer.firstTokenAt = now;
      this.#firstToken.observe((now - answer.submittedAt) / 1000);
      this.#promptTokens.inc({source: 'computed'}, prompt.length - cachedTokens);
      this.#promptTokens.inc({source: 'cached'}, cachedTokens);
    }
    this.#answerTokens.inc(tokens.length - answer.tokens);
    answer.tokens = tokens.length;
    if (!ended || tokens.length < 2) return;
    this.#tokenTime.observe((now - answer.firstTokenAt) / 1000 / (tokens.length - 1));
  }
}
