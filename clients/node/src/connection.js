// SPDX-License-Identifier: Apache-2.0
// How a client reaches a server: address, TLS and bearer token (docs/identity.md), and the methods
// of the wire contract.
import {existsSync, readFileSync} from 'node:fs';
import {isIP} from 'node:net';
import {fileURLToPath} from 'node:url';

import * as grpc from '@grpc/grpc-js';
import * as loader from '@grpc/proto-loader';

// Answers may be larger than gRPC's 4 MiB: docs/wire.md bounds them by limits.max_result_bytes.
const options = {
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
  'grpc.keepalive_time_ms': 20000,
  'grpc.keepalive_timeout_ms': 20000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
  // One connection for one client: another's end is none of ours.
  'grpc.use_local_subchannel_pool': 1,
};

// The contract: of this package, or of the repository that it lies in.
function protoFolder() {
  const folders = ['../proto/', '../../../proto/'].map((path) => new URL(path, import.meta.url));
  const found = folders.find((url) => existsSync(new URL('reprise/v1/step_service.proto', url)));
  if (!found) throw new Error(`step_service.proto: not found in ${folders.join(' or ')}`);
  return fileURLToPath(found);
}

let service;
function stepService() {
  service ??= grpc.loadPackageDefinition(
    loader.loadSync('reprise/v1/step_service.proto', {
      includeDirs: [protoFolder()],
      longs: Number,
      enums: String,
      defaults: true,
      oneofs: true,
    }),
  ).reprise.v1.StepService;
  return service;
}

// The method's path and how its messages are written and read. Messages of a stream are encoded
// before they are sent, so that one that is none does not end the call.
export function stepStream() {
  return stepService().service.StepStream;
}

// The bearer token in a file, without the newline at its end. Throws what reading throws, and Error
// for text that is no token.
export function readToken(path) {
  const token = readFileSync(path, 'latin1').replace(/[\r\n]+$/, '');
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new Error(`${path}: token: allowed: one line of printable ASCII without spaces`);
  }
  return token;
}

// Whether what is sent to the address stays on this host.
export function isLocal(address) {
  if (address.startsWith('unix:')) return true;
  const host = address.slice(0, address.lastIndexOf(':')).replace(/^\[|\]$/g, '');
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

function bytes(value) {
  return typeof value === 'string' ? Buffer.from(value) : (value ?? null);
}

// address: "unix:/path" or "host:port". token: a string, or undefined. tls: undefined for plain
// text, or PEM texts {ca, certificate, key}. Throws RangeError for a token that would leave this
// host in plain text, and for a certificate without its key.
export function connect(address, {token, tls}) {
  if (tls && (tls.certificate === undefined) !== (tls.key === undefined)) {
    throw new RangeError('tls: got a certificate without its key or a key without its certificate');
  }
  if (token !== undefined && !tls && !isLocal(address)) {
    throw new RangeError(
      `token: got one for ${address} without TLS, ` +
        'allowed: with TLS, on a unix socket or on an address of this host',
    );
  }
  const credentials = tls
    ? grpc.credentials.createSsl(bytes(tls.ca), bytes(tls.key), bytes(tls.certificate))
    : grpc.credentials.createInsecure();
  return new (stepService())(address, credentials, options);
}

// Metadata of every call.
export function metadataFor(token) {
  const metadata = new grpc.Metadata();
  if (token !== undefined) metadata.set('authorization', `Bearer ${token}`);
  return metadata;
}
