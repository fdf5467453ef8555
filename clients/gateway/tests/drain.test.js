// SPDX-License-Identifier: Apache-2.0
// The stop of an HTTP server whose answers are not read yet.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer} from 'node:http';
import {connect} from 'node:net';
import {test} from 'node:test';
import {setTimeout as sleep} from 'node:timers/promises';

import {Drain} from '../src/drain.js';

const large = 20 << 20;
const wholeMs = 200;

// A server that answers every request with `large` bytes at once, once its body is whole.
async function startServer(sendMs) {
  const server = createServer((request, response) => {
    request.on('error', () => {});
    request.on('end', () => response.end(Buffer.alloc(large)));
    request.resume();
  });
  const drain = new Drain(server, {sendMs, wholeMs});
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {drain, port: server.address().port};
}

// A client that has sent `text` and reads nothing.
async function connectTo(port, text) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.pause();
  await once(socket, 'connect');
  socket.write(text);
  return socket;
}

const get = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

test('an answer that was ended is sent whole to a client that is slow', async () => {
  const {drain, port} = await startServer(30000);
  const slow = await connectTo(port, get);
  const never = await connectTo(port, 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{');
  await sleep(100); // the server has both
  drain.stopListening();
  const closed = drain.close();
  await sleep(2 * wholeMs);
  let bytes = 0;
  slow.on('data', ({length}) => (bytes += length)).resume();
  await Promise.all([once(slow, 'close'), closed]);
  assert.ok(bytes > large, `${bytes}`);
  never.destroy();
});

test('a client that reads nothing is waited for up to a bound', async () => {
  const {drain, port} = await startServer(500);
  const socket = await connectTo(port, get);
  await sleep(100);
  drain.stopListening();
  const begin = performance.now();
  await drain.close();
  const took = performance.now() - begin;
  assert.ok(took > 450 && took < 10000, `${took}`);
  socket.destroy();
});

test('a request that does not come whole is not waited for', async () => {
  const {drain, port} = await startServer(30000);
  const socket = await connectTo(port, 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{');
  await sleep(100);
  drain.stopListening();
  const begin = performance.now();
  await drain.close();
  assert.ok(performance.now() - begin < 10000);
  socket.destroy();
});
