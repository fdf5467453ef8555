// SPDX-License-Identifier: Apache-2.0
// Client: one connection to a step service, and the calls that belong to no stream.
import {Metadata, status} from '@grpc/grpc-js';

import {connect, metadataFor, stepStream} from './connection.js';
import {UnknownError, errorOfCall} from './errors.js';
import {Session} from './session.js';
import {Stream} from './stream.js';

const SERVING = Buffer.from([8, 1]); // grpc.health.v1.HealthCheckResponse with status SERVING
const same = (value) => value;
const encode = (message) => stepStream().requestSerialize(message);

// A connection, made when it is first needed and again when it is lost.
export class Client {
  #service;
  #metadata;

  // See `connect` for what is thrown.
  constructor(address, {token, tls} = {}) {
    this.#service = connect(address, {token, tls});
    this.#metadata = metadataFor(token);
  }

  // Cancels what is open. Close sessions first.
  close() {
    this.#service.close();
  }

  // Whether the server says SERVING; false also where it cannot be reached in that time.
  isServing(timeoutMs = 10000) {
    return new Promise((resolve) => {
      this.#service.makeUnaryRequest(
        '/grpc.health.v1.Health/Check',
        same,
        same,
        Buffer.alloc(0),
        new Metadata({waitForReady: true}),
        {deadline: Date.now() + timeoutMs},
        (error, answer) => resolve(!error && SERVING.equals(answer)),
      );
    });
  }

  // What is served: model, pool, limits, buckets.
  describe({timeoutMs} = {}) {
    return this.#unary('describe', {}, timeoutMs);
  }

  // Opens a session on a stream of its own. name: for the server's logs, at most 256 bytes.
  // resumeGraceMs: how long the session is to outlive a lost stream; above 0 the session resumes by
  // itself, within what the server grants.
  async openSession({name = '', resumeGraceMs = 0} = {}) {
    const begin = (first) => this.#beginStream(first);
    const {stream, answer} = await begin({open: {client: name, resumeGraceMs}});
    const unary = (method, request) => this.#unary(method, request);
    const {opened} = answer;
    // Of a session that cannot be resumed no answers are kept: then the server's own bound holds.
    const maxUnanswered =
      opened.maxKeptAnswers || 2 * (await this.describe()).limits.pipelineDepth;
    return new Session({begin, encode, unary, stream, opened, maxUnanswered});
  }

  // All clients' sessions, ids ascending. For administrators (docs/sessions.md).
  async *listSessions() {
    for (let after = 0, more = true; more; ) {
      const page = await this.#unary('listSessions', {after});
      for (const session of page.sessions) {
        after = session.id;
        yield session;
      }
      more = page.more;
    }
  }

  // Ends another client's session. For administrators.
  async evictSession(id, reason = '') {
    await this.#unary('evictSession', {id, reason});
  }

  // Has the server capture graphs of other buckets while it serves, and use them from then on.
  // decode: in rows; mixed: in query tokens; a kind without any keeps what it has. For
  // administrators (docs/advise.md).
  setBuckets({decode = [], mixed = []}) {
    return this.#unary('setBuckets', {decode, mixed});
  }

  // Puts another attention tree in force, for all sessions, from the next step on. text: JSON
  // (docs/attention_tree.md); `(await describe()).attentionTree` has the one in force. Resolves to
  // its version. For administrators; a server without identities has to be started with
  // --allow-attention-trees.
  async setAttentionTree(text) {
    return (await this.#unary('setAttentionTree', {text})).version;
  }

  // Has the server read its files of identities and TLS again, all of them or none. For
  // administrators (docs/identity.md).
  reloadFiles() {
    return this.#unary('reloadFiles', {});
  }

  // Clocks and power of the device, where its platform reports them. For administrators.
  readTelemetry() {
    return this.#unary('readTelemetry', {});
  }

  #unary(method, request, timeoutMs) {
    const options = timeoutMs === undefined ? {} : {deadline: Date.now() + timeoutMs};
    return new Promise((resolve, reject) => {
      this.#service[method](request, this.#metadata, options, (error, answer) => {
        if (error) reject(errorOfCall(error));
        else resolve(answer);
      });
    });
  }

  // A StepStream whose first message is sent and answered.
  async #beginStream(first) {
    const {path, responseDeserialize} = stepStream();
    const stream = new Stream(
      this.#service.makeBidiStreamRequest(path, same, responseDeserialize, this.#metadata),
    );
    stream.write(encode(first));
    try {
      return {stream, answer: await stream.next()};
    } catch (end) {
      if (end.code !== status.OK) throw errorOfCall(end);
      throw new UnknownError(status.UNKNOWN, 'the stream ended before its first answer');
    }
  }
}
