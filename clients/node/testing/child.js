// SPDX-License-Identifier: Apache-2.0
// A process that a test starts. It ends with the test's own, and keeps that one from ending only
// while its end is waited for.
import {spawn} from 'node:child_process';

export class Child {
  output = '';
  #process;
  #exited;

  constructor(program, command) {
    this.#process = spawn(program, command, {stdio: ['ignore', 'pipe', 'pipe']});
    this.#exited = new Promise((resolve) => this.#process.on('exit', resolve));
    for (const pipe of [this.#process.stdout, this.#process.stderr]) {
      pipe.on('data', (text) => (this.output += text));
      pipe.unref();
    }
    this.#process.unref();
    const kill = () => this.#process.kill('SIGKILL');
    process.on('exit', kill);
    this.#process.on('exit', () => process.off('exit', kill));
  }

  get hasExited() {
    return this.#process.exitCode !== null || this.#process.signalCode !== null;
  }

  // Resolves to the exit code.
  exited() {
    this.#process.ref();
    return this.#exited;
  }

  stop(signal = 'SIGTERM') {
    this.#process.kill(signal);
    return this.exited();
  }
}
