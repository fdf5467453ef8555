// SPDX-License-Identifier: Apache-2.0
// The types: they are those of the wire contract, and say what uses of the package are right.
import assert from 'node:assert/strict';
import {execFileSync, spawnSync} from 'node:child_process';
import {createRequire} from 'node:module';
import {test} from 'node:test';
import {fileURLToPath} from 'node:url';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

test('types are those of the wire contract', () => {
  execFileSync(process.execPath, [here('../tools/write_types.js'), '--check']);
});

test('right uses compile and wrong ones do not', () => {
  const compiler = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const target = ['--module', 'nodenext', '--target', 'es2022'];
  const options = ['--noEmit', '--strict', '--skipLibCheck', ...target];
  const types = ['--types', 'node', here('../testing/uses.ts')];
  const done = spawnSync(process.execPath, [compiler, ...options, ...types], {encoding: 'utf8'});
  assert.equal(done.status, 0, done.stdout);
});
