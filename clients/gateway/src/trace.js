// SPDX-License-Identifier: Apache-2.0
// Traces of requests: the trace id of a `traceparent` header.
// Source: W3C Trace Context, level 1, "traceparent Header".

// Later versions may go on behind another dash.
const pattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/;

// The 16 bytes of the trace id of a request's headers; undefined where there is no traceparent, or
// one that is not well formed. Several are one to node:http, joined by commas, and so are none.
export function traceIdOf({traceparent = ''}) {
  const [, version, trace, parent, rest] = pattern.exec(traceparent) ?? [];
  if (version === undefined || version === 'ff') return undefined;
  if (/^0+$/.test(trace) || /^0+$/.test(parent)) return undefined;
  if (version === '00' && rest !== undefined) return undefined;
  return Buffer.from(trace, 'hex');
}
