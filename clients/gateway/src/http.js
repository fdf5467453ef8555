// SPDX-License-Identifier: Apache-2.0
// The HTTP side: routes, bodies, keys, and errors.
import {createHash, timingSafeEqual} from 'node:crypto';
import {createServer} from 'node:http';

import {ApiError, toApiError} from './api_error.js';
import {parse} from './parse.js';
import {serveRequest} from './serve_request.js';
import {traceIdOf} from './trace.js';

const MAX_BODY_BYTES = 8 << 20;
const CLIENT_GONE = 499; // in metrics: nobody was there to be answered

async function readBody(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    // Of a body that is too large the rest is thrown away, so that its sender gets an answer.
    if (bytes > MAX_BODY_BYTES) chunks.length = 0;
    else chunks.push(chunk);
  }
  if (bytes > MAX_BODY_BYTES) {
    const message = `body: got ${bytes} bytes, allowed: at most ${MAX_BODY_BYTES}`;
    throw new ApiError(413, message, {code: 'request_too_large'});
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw new ApiError(400, `body: got no JSON: ${error.message}`, {code: 'invalid_json'});
  }
}

const digest = (text) => createHash('sha256').update(text).digest();

// Throws ApiError unless the request brings the key.
function checkKey(request, apiKey) {
  if (apiKey === undefined) return;
  const got = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (got !== undefined && timingSafeEqual(digest(got), digest(apiKey))) return;
  throw new ApiError(401, 'authorization: got no or a wrong key, allowed: Bearer and the API key', {
    code: 'invalid_api_key',
  });
}

function sendJson(response, status, value) {
  response.writeHead(status, {'content-type': 'application/json'});
  response.end(JSON.stringify(value));
}

function modelOf({modelName, created, scheduler}) {
  return {
    id: modelName,
    object: 'model',
    created,
    owned_by: 'reprise',
    max_model_len: scheduler.maxTokens,
  };
}

// Path to method to handler.
function routesOf(context) {
  const generate = (kind) => async (request, response) => {
    const body = await readBody(request);
    const {described, maxTokens} = context.scheduler;
    const parsed = parse(body, kind, {...context, described, maxTokens});
    await serveRequest({...parsed, traceId: traceIdOf(request.headers)}, context, response);
  };
  const health = (request, response) => {
    const {isConnected} = context.scheduler;
    sendJson(response, isConnected ? 200 : 503, {status: isConnected ? 'ok' : 'no step service'});
  };
  const metrics = async (request, response) => {
    const text = await context.metrics.text();
    response.writeHead(200, {'content-type': context.metrics.contentType});
    response.end(text);
  };
  return {
    '/health': {open: true, GET: health},
    '/metrics': {GET: metrics},
    '/v1/models': {
      GET: (request, response) =>
        sendJson(response, 200, {object: 'list', data: [modelOf(context)]}),
    },
    [`/v1/models/${context.modelName}`]: {
      GET: (request, response) => sendJson(response, 200, modelOf(context)),
    },
    '/v1/completions': {POST: generate('completion')},
    '/v1/chat/completions': {POST: generate('chat')},
  };
}

function pathOf(url) {
  try {
    return decodeURIComponent(url.split('?')[0]);
  } catch {
    throw new ApiError(400, `path: got ${url}, allowed: valid percent-encoding`);
  }
}

function route(routes, request, apiKey) {
  const path = pathOf(request.url);
  const found = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (!found?.open) checkKey(request, apiKey);
  if (!found && path.startsWith('/v1/models/')) {
    const name = path.slice('/v1/models/'.length);
    throw new ApiError(404, `The model \`${name}\` does not exist`, {
      param: 'model',
      code: 'model_not_found',
    });
  }
  if (!found) {
    throw new ApiError(404, `path: got ${path}, allowed: ${Object.keys(routes).join(', ')}`, {
      code: 'unknown_url',
    });
  }
  const handler = found[request.method];
  if (handler) return handler;
  const allowed = Object.keys(found).filter((name) => name !== 'open');
  throw new ApiError(405, `${path}: got ${request.method}, allowed: ${allowed}`, {
    code: 'method_not_allowed',
  });
}

// What a request is called in the log.
function nameOf({method, url, headers}) {
  const trace = traceIdOf(headers);
  return `${method} ${url}${trace ? ` (trace ${trace.toString('hex')})` : ''}`;
}

// What a path is called in metrics: a few names, whatever clients ask for.
function routeOf(routes, url) {
  try {
    const path = pathOf(url);
    if (path.startsWith('/v1/models/')) return '/v1/models/{model}';
    return Object.hasOwn(routes, path) ? path : 'other';
  } catch {
    return 'other';
  }
}

// Counts the request when its answer is sent, or its client is gone.
function count(request, response, routes, metrics) {
  response.on('close', () => {
    const code = response.headersSent ? response.statusCode : CLIENT_GONE;
    metrics.requestAnswered(routeOf(routes, request.url), code);
  });
}

// context: {scheduler, textModel, jsonFormats, metrics, modelName, apiKey, log}. apiKey undefined:
// everyone may ask.
export function makeServer(context) {
  const routes = routesOf({...context, created: Math.floor(Date.now() / 1000)});
  return createServer(async (request, response) => {
    count(request, response, routes, context.metrics);
    try {
      await route(routes, request, context.apiKey)(request, response);
    } catch (error) {
      const known = toApiError(error);
      if (response.destroyed) return;
      if (known !== error) context.log(`${nameOf(request)}: ${error.stack}`);
      if (response.headersSent) response.end();
      else sendJson(response, known.status, known.body);
    }
  });
}
