// SPDX-License-Identifier: Apache-2.0
// Client of Reprise's step service (docs/clients.md, docs/wire.md).
//
//   const client = new Client('unix:/run/reprise.sock');
//   const session = await client.openSession({name: 'my scheduler'});
//   const blocks = await session.allocate(4);
//   const answer = await session.step({
//     add: [{row: 1, blocks}],
//     chunks: [{row: 1, tokens: [5, 80, 33], sample: true}],
//   });
//   console.log(rowsOf(answer).map((row) => row.token));
//   await session.close();
//   client.close();
//
// Messages are plain objects with the fields of the .proto file in camelCase. This package does no
// scheduling: the caller says what each step runs, and which block goes where.
export {Client} from './client.js';
export {readToken} from './connection.js';
export {
  AbortedError,
  AlreadyExistsError,
  CancelledError,
  DeadlineExceededError,
  FailedPreconditionError,
  InternalError,
  InvalidArgumentError,
  NotFoundError,
  OutOfRangeError,
  PermissionDeniedError,
  RepriseError,
  ResourceExhaustedError,
  SessionEndedError,
  UnauthenticatedError,
  UnavailableError,
  UnimplementedError,
  UnknownError,
} from './errors.js';
export {rowsOf} from './rows.js';
export {Session} from './session.js';
