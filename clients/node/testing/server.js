// SPDX-License-Identifier: Apache-2.0
// A `reprise serve` process for tests, its files of identities, and a proxy whose connections can
// be cut. REPRISE_PROGRAM: path of the program.
import {execFileSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {connect, createServer} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';

import {Child} from './child.js';

// Generous: the server may run under a sanitizer.
export const timeoutMs = Number(process.env.REPRISE_TEST_TIMEOUT_MS ?? 120000);
export const repository = fileURLToPath(new URL('../../../', import.meta.url));
export const llamaTiny = join(repository, 'tests/fixtures/llama-tiny');

// The prompts of a fixture model, and the tokens that are right after them.
export function referenceOf(model) {
  return JSON.parse(readFileSync(join(model, 'reference.json'), 'utf8')).prompts;
}

export function scratchFolder() {
  return mkdtempSync(join(tmpdir(), 'reprise-node-'));
}

// Waits for `condition`, which may be async; throws where it does not come.
export async function eventually(condition, what = condition) {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`did not come to pass: ${what}`);
    await sleep(10);
  }
}

export class Server {
  constructor(model = llamaTiny, more = [], folder = scratchFolder()) {
    this.folder = folder;
    this.socket = `unix:${join(this.folder, 's')}`;
    this.command = ['serve', '--model', model, '--device', 'host', '--listen', this.socket];
    this.command.push('--listen', '127.0.0.1:0', ...more);
  }

  // Resolves when the server serves.
  async start() {
    const program = process.env.REPRISE_PROGRAM;
    if (!program) throw new Error('REPRISE_PROGRAM: not set, allowed: path of `reprise`');
    this.child = new Child(program, this.command);
    const port = () => /serving on .*127\.0\.0\.1:(\d+)/.exec(this.output)?.[1];
    await eventually(() => port() || this.child.hasExited, 'the server serves');
    if (!port()) throw new Error(`reprise serve did not start:\n${this.output}`);
    this.tcp = `localhost:${port()}`;
    return this;
  }

  get output() {
    return this.child.output;
  }

  // Resolves to its exit code.
  stop(signal) {
    return this.child.stop(signal);
  }

  async remove() {
    const code = await this.stop();
    rmSync(this.folder, {recursive: true, force: true});
    return code;
  }
}

// A certificate for localhost and a file of identities in `folder`; the server's flags for them.
// This process is an administrator on the unix socket, where it sends no token.
export function makeIdentities(folder, token) {
  const [key, certificate] = ['server.key', 'server.pem'].map((name) => join(folder, name));
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  const files = ['-keyout', key, '-out', certificate];
  const request = ['req', '-x509', ...curve, '-nodes', '-days', '2', ...names, ...files];
  execFileSync('openssl', request, {stdio: 'ignore'});
  const digest = createHash('sha256').update(token).digest('hex');
  const chat = {name: 'chat', roles: ['step'], token_sha256: [digest]};
  const operator = {name: 'operator', roles: ['administer'], unix_users: [process.getuid()]};
  const identities = join(folder, 'identities.json');
  writeFileSync(identities, JSON.stringify({identities: [chat, operator]}), {mode: 0o600});
  return ['--identities', identities, '--tls-certificate', certificate, '--tls-key', key];
}

// Passes bytes to a server; `cut` breaks the connections that there are.
export class Proxy {
  #sockets = new Set();
  #server;

  async start(target) {
    const [host, port] = target.split(':');
    this.#server = createServer((near) => {
      const far = connect(Number(port), host);
      for (const [from, to] of [[near, far], [far, near]]) {
        this.#sockets.add(from);
        from.on('error', () => to.destroy());
        from.on('close', () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
    });
    await new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `127.0.0.1:${this.#server.address().port}`;
  }

  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop() {
    this.cut();
    this.#server.close();
  }
}
