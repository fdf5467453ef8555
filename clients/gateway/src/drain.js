// SPDX-License-Identifier: Apache-2.0
// Drain: stops an HTTP server without cutting off answers that are still being sent, which the
// server's own close() does.
import {Server} from 'node:net';
import {setTimeout as sleep} from 'node:timers/promises';

const POLL_MS = 20;

export class Drain {
  #server;
  #sendMs;
  #wholeMs;
  #running = new Map(); // connections to their requests whose answers are not sent
  #closed;

  // server: of node:http, that does not listen yet. sendMs: how long clients may take to read what
  // is left for them. wholeMs: how long a request that has begun may take to come whole.
  constructor(server, {sendMs = 30000, wholeMs = 1000} = {}) {
    this.#server = server;
    this.#sendMs = sendMs;
    this.#wholeMs = wholeMs;
    server.on('connection', (socket) => {
      this.#running.set(socket, new Set());
      socket.on('close', () => this.#running.delete(socket));
    });
    server.on('request', (request, response) => {
      const requests = this.#running.get(request.socket);
      requests?.add(request);
      response.on('close', () => requests?.delete(request)); // the system has all of its bytes
    });
  }

  // Takes no further connections.
  stopListening() {
    this.#closed = new Promise((done) => Server.prototype.close.call(this.#server, done));
  }

  // After stopListening(), when no answer is computed any more. Resolves when all connections are
  // closed.
  async close() {
    const deadline = performance.now() + this.#sendMs;
    await this.#sent(deadline);
    this.#server.closeIdleConnections();
    await Promise.race([this.#closed, sleep(this.#wholeMs, undefined, {ref: false})]);
    await this.#sent(deadline); // to requests that came whole meanwhile
    this.#server.closeAllConnections();
    await this.#closed;
  }

  async #sent(deadline) {
    while (this.#isSending && performance.now() < deadline) await sleep(POLL_MS);
  }

  get #isSending() {
    return [...this.#running.values()].some((requests) =>
      [...requests].some(({complete}) => complete),
    );
  }
}
