// SPDX-License-Identifier: Apache-2.0
// A gateway process for tests, and requests to it as curl sends them.
import {fileURLToPath} from 'node:url';

import {Child} from '../../node/testing/child.js';
import {eventually} from '../../node/testing/server.js';

const main = fileURLToPath(new URL('../src/main.js', import.meta.url));
export const llamaTinyText = fileURLToPath(new URL('llama-tiny/', import.meta.url));

export class Gateway {
  constructor(flags) {
    this.flags = flags;
  }

  // Resolves when the gateway serves, or has ended.
  async start() {
    const command = [main, '--listen', '127.0.0.1:0', ...this.flags];
    this.child = new Child(process.execPath, command);
    const url = () => /serving on (http:\S+)/.exec(this.output)?.[1];
    await eventually(() => url() || this.child.hasExited, 'the gateway serves');
    this.url = url();
    return this;
  }

  // Resolves to its exit code.
  stop(signal) {
    return this.child.stop(signal);
  }

  get output() {
    return this.child.output;
  }

  // Resolves to {status, body}; the body is parsed where it is JSON.
  async ask(path, body, more = {}) {
    const request = body === undefined ? {} : {method: 'POST', body: JSON.stringify(body)};
    const response = await fetch(this.url + path, {...request, ...more});
    const text = await response.text();
    const isJson = response.headers.get('content-type') === 'application/json';
    return {status: response.status, body: isJson ? JSON.parse(text) : text};
  }

  complete(body) {
    return this.ask('/completions', body);
  }
}

// The objects of a stream of events, "[DONE]" included.
export function eventsOf(text) {
  const lines = text.split('\n\n').filter((event) => event !== '');
  return lines.map((line) => {
    const data = line.slice('data: '.length);
    return data === '[DONE]' ? data : JSON.parse(data);
  });
}
