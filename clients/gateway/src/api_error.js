// SPDX-License-Identifier: Apache-2.0
// Errors in OpenAI's format: {"error": {message, type, param, code}} with an HTTP status.

export class ApiError extends Error {
  // param: the field of the request that is wrong, or null. code: a word for programs, or null.
  constructor(status, message, {param = null, code = null} = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }

  get body() {
    const {message, param, code} = this;
    return {error: {message, type: typeOf(this.status), param, code}};
  }
}

function typeOf(status) {
  if (status === 401) return 'authentication_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}

// The begin of a value as JSON.
export function shown(value) {
  if (value === undefined) return 'nothing';
  try {
    return JSON.stringify(value).slice(0, 100);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return 'a value nested too deeply'; // for the stack
  }
}

// A field that is wrong: what it got and what is allowed.
export function invalid(param, got, allowed) {
  return new ApiError(400, `${param}: got ${shown(got)}, allowed: ${allowed}`, {
    param,
    code: 'invalid_value',
  });
}

// What any error is to a client of the gateway.
export function toApiError(error) {
  if (error instanceof ApiError) return error;
  return new ApiError(500, `the gateway failed: ${error.message}`);
}
