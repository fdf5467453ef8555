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

// A field that is wrong: what it got and what is allowed.
export function invalid(param, got, allowed) {
  const shown = got === undefined ? 'nothing' : JSON.stringify(got).slice(0, 100);
  return new ApiError(400, `${param}: got ${shown}, allowed: ${allowed}`, {
    param,
    code: 'invalid_value',
  });
}

// What any error is to a client of the gateway.
export function toApiError(error) {
  if (error instanceof ApiError) return error;
  return new ApiError(500, `the gateway failed: ${error.message}`);
}
