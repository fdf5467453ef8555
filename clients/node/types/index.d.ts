// SPDX-License-Identifier: Apache-2.0
// Types of reprise-client. What functions do is said in src/, what fields mean in
// proto/reprise/v1/step_service.proto.
import {
  DescribeResponse,
  FinishReason,
  KvLayout,
  KvPart,
  KvRange,
  ReadBlocksResponse,
  ReadTelemetryResponse,
  ReloadFilesResponse,
  RowStatus,
  SessionStatus,
  SetBucketsResponse,
  StepRequest,
  StepResponse,
  SwapOutStateResponse,
} from './messages.js';

export * from './messages.js';

/** PEM texts. ca: of the server's authority; left out: those that Node knows. */
export interface Tls {
  ca?: string | Buffer;
  certificate?: string | Buffer;
  key?: string | Buffer;
}

export interface ClientOptions {
  /** Sent as a bearer token with every call. */
  token?: string;
  /** Left out: plain text. */
  tls?: Tls;
}

export interface SessionOptions {
  /** For the server's logs, at most 256 bytes. */
  name?: string;
  /** How long the session is to outlive a lost stream; 0: it does not. */
  resumeGraceMs?: number;
}

export class Client {
  /** address: "unix:/path" or "host:port". Throws RangeError for options that contradict. */
  constructor(address: string, options?: ClientOptions);
  close(): void;
  isServing(timeoutMs?: number): Promise<boolean>;
  describe(options?: {timeoutMs?: number}): Promise<DescribeResponse>;
  openSession(options?: SessionOptions): Promise<Session>;
  listSessions(): AsyncGenerator<SessionStatus, void, void>;
  evictSession(id: number, reason?: string): Promise<void>;
  setBuckets(buckets: {decode?: number[]; mixed?: number[]}): Promise<SetBucketsResponse>;
  setAttentionTree(text: string): Promise<number>;
  reloadFiles(): Promise<ReloadFilesResponse>;
  readTelemetry(): Promise<ReadTelemetryResponse>;
}

export class Session {
  private constructor();
  readonly token: Buffer;
  readonly resumeGraceMs: number;
  readonly maxUnanswered: number;
  /** Resolves when the session has ended, to why. */
  readonly ended: Promise<SessionEndedError>;
  step(request: StepRequest): Promise<StepResponse>;
  run(
    steps: Iterable<StepRequest> | AsyncIterable<StepRequest>,
    options?: {depth?: number},
  ): AsyncGenerator<StepResponse, void, void>;
  allocate(count: number): Promise<number[]>;
  free(blocks: number[]): Promise<void>;
  shareBlocks(name: string, blocks: number[]): Promise<void>;
  adoptBlocks(name: string): Promise<number[]>;
  releaseBlocks(name: string): Promise<void>;
  readBlocks(ranges: KvRange[]): Promise<ReadBlocksResponse>;
  writeBlocks(layout: KvLayout, parts: KvPart[]): Promise<void>;
  swapOut(blocks: number[]): Promise<number[]>;
  swapIn(swapped: number[]): Promise<number[]>;
  swapOutState(row: number): Promise<SwapOutStateResponse>;
  freeSwapped(swapped: number[], swappedStates?: number[]): Promise<void>;
  exportBlocks(blocks: number[]): Promise<Buffer[]>;
  importBlocks(blocks: number[], tickets: Uint8Array[]): Promise<number[]>;
  freeExported(tickets: Uint8Array[]): Promise<void>;
  close(): Promise<void>;
}

export interface RowResult {
  row: number;
  status: RowStatus;
  token: number | undefined;
  logprob: number | undefined;
  contextLength: number;
  finishReason: FinishReason;
  rank: number;
  top: {token: number; logprob: number}[];
}

export function rowsOf(answer: StepResponse): RowResult[];
export function readToken(path: string): string;

export class RepriseError extends Error {
  /** The gRPC status code, and its name. */
  readonly code: number;
  readonly status: string;
  /** Of the step that was refused. */
  readonly sequence: number | undefined;
  /** Of the refused step that this one was sent behind. */
  readonly behind: number | undefined;
}

export class AbortedError extends RepriseError {}
export class AlreadyExistsError extends RepriseError {}
export class CancelledError extends RepriseError {}
export class DeadlineExceededError extends RepriseError {}
export class FailedPreconditionError extends RepriseError {}
export class InternalError extends RepriseError {}
export class InvalidArgumentError extends RepriseError {}
export class NotFoundError extends RepriseError {}
export class OutOfRangeError extends RepriseError {}
export class PermissionDeniedError extends RepriseError {}
export class ResourceExhaustedError extends RepriseError {}
export class SessionEndedError extends RepriseError {}
export class UnauthenticatedError extends RepriseError {}
export class UnavailableError extends RepriseError {}
export class UnimplementedError extends RepriseError {}
export class UnknownError extends RepriseError {}
