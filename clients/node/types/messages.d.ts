// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_types.js: the messages of proto/reprise/v1/step_service.proto as the
// client takes and gives them. Fields are in camelCase, enums by name, 64-bit numbers are numbers.
// A field of a request may be left out; a message that an answer does not have is null, and a field
// that is optional in the contract is left out.

export interface StepRequest {
  session?: Uint8Array;
  sequence?: number | string;
  drop?: number[];
  add?: AddRow[];
  append?: AppendBlocks[];
  chunks?: Chunk[];
  continueRows?: number[];
  continueAll?: boolean;
  mode?: ExecutionMode;
  omitRows?: boolean;
  copyBlocks?: number[];
  masks?: SetAllowedTokens[];
  prefixes?: PrefixGroup[];
  numSteps?: number;
  traceId?: Uint8Array;
  isolateBadRows?: boolean;
  drafts?: RowDraft[];
  stamped?: boolean;
  unpadded?: boolean;
}

export interface AddRow {
  row?: number;
  blocks?: number[];
  contextLength?: number;
  sampling?: Sampling;
  history?: number[];
  promptLength?: number;
  forkOf?: number;
  swappedState?: number;
}

export interface Sampling {
  temperature?: number;
  seed?: number | string;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  numLogprobs?: number;
  logitBiasToken?: number[];
  logitBias?: number[];
  allowedTokens?: Uint8Array;
  stopTokens?: number[];
  stopAtEos?: boolean;
  maxNewTokens?: number;
  minTokens?: number;
  returnLogits?: boolean;
}

export interface AppendBlocks {
  row?: number;
  blocks?: number[];
}

export interface Chunk {
  row?: number;
  tokens?: number[];
  sample?: boolean;
  promptLogprobs?: boolean;
  nextToken?: number;
}

export type ExecutionMode =
  | 'EXECUTION_MODE_UNSPECIFIED'
  | 'EXECUTION_MODE_REPLAY'
  | 'EXECUTION_MODE_EAGER';

export interface SetAllowedTokens {
  row?: number;
  allowedTokens?: Uint8Array;
}

export interface PrefixGroup {
  group?: number;
  numBlocks?: number;
  rows?: number[];
}

export interface RowDraft {
  row?: number;
  tokens?: number[];
}

export interface KvRange {
  block?: number;
  firstLayer?: number;
  numLayers?: number;
}

export interface StepResponse {
  sequence: number;
  rows: RowResults | null;
  report: StepReport | null;
  ledger: StepLedger | null;
  promptLogprobs: PromptLogprobs | null;
  steps: SingleStep[];
  traceId: Buffer;
  rowErrors: RowError[];
  stamps: StepStamps | null;
}

export interface RowResults {
  row: number[];
  status: RowStatus[];
  sampled: boolean[];
  token: number[];
  logprob: number[];
  contextLength: number[];
  finishReason: FinishReason[];
  rank: number[];
  numTop: number[];
  topToken: number[];
  topLogprob: number[];
  logitsRow: number[];
  logits: number[];
  accepted: AcceptedDrafts | null;
}

export type RowStatus =
  | 'ROW_STATUS_UNSPECIFIED'
  | 'ROW_STATUS_RAN'
  | 'ROW_STATUS_STOPPED'
  | 'ROW_STATUS_PAUSED';

export type FinishReason =
  | 'FINISH_REASON_UNSPECIFIED'
  | 'FINISH_REASON_STOP_TOKEN'
  | 'FINISH_REASON_LENGTH'
  | 'FINISH_REASON_NO_CANDIDATE';

export interface AcceptedDrafts {
  count: number[];
  token: number[];
  logprob: number[];
  rank: number[];
  numTop: number[];
  topToken: number[];
  topLogprob: number[];
}

export interface StepReport {
  graph: string;
  replayed: boolean;
  rows: number;
  tokens: number;
  paddingRows: number;
  paddingTokens: number;
  attentionTree: number;
  attentionLeaf: number;
  otherRows: number;
  otherTokens: number;
}

export interface StepLedger {
  wireNs: number;
  queueNs: number;
  validateNs: number;
  ringNs: number;
  launchNs: number;
  deviceNs: number;
  replyNs: number;
  totalNs: number;
}

export interface PromptLogprobs {
  row: number[];
  position: number[];
  logprob: number[];
  rank: number[];
  numTop: number[];
  topToken: number[];
  topLogprob: number[];
}

export interface SingleStep {
  numRows: number;
  report: StepReport | null;
  deviceNs: number;
}

export interface RowError {
  row: number;
  code: number;
  message: string;
}

export interface StepStamps {
  beginNs: number;
  tookNs: number[];
}

export interface DescribeResponse {
  model: Model | null;
  pool: Pool | null;
  limits: Limits | null;
  buckets: Bucket[];
  device: Device | null;
  memory: Memory | null;
  rank: number;
  worldSize: number;
  serverVersion: string;
  apiVersion: string;
  linearPolicy: string;
  attentionTree: AttentionTree | null;
  kvLayout: KvLayout | null;
  bucketsVersion: number;
}

export interface Model {
  name: string;
  architecture: string;
  vocabSize: number;
  maxPositionEmbeddings: number;
  eosTokenIds: number[];
  dtype: string;
  numLayers: number;
  hiddenSize: number;
  numHeads: number;
  numKvHeads: number;
  headDim: number;
  numParameters: number;
  tokenEncoding: TokenEncoding;
  kvDtype: string;
  weightDtype: string;
}

export type TokenEncoding =
  | 'TOKEN_ENCODING_UNSPECIFIED'
  | 'TOKEN_ENCODING_OPAQUE'
  | 'TOKEN_ENCODING_BYTES';

export interface Pool {
  blockSize: number;
  numBlocks: number;
  freeBlocks: number;
  bytes: number;
  swapBlocks: number;
  freeSwapBlocks: number;
  exportBlocks: number;
  freeExportBlocks: number;
  swapStates: number;
  freeSwapStates: number;
}

export interface Limits {
  maxRows: number;
  maxContextLength: number;
  maxBlocksPerRow: number;
  maxStepTokens: number;
  pipelineDepth: number;
  maxMessageBytes: number;
  adjustLogits: boolean;
  maxLogitRows: number;
  maxPromptLogprobs: number;
  maxSamplingBytes: number;
  maxStopTokens: number;
  maxLogitBias: number;
  maxLogprobs: number;
  maxStepBytes: number;
  maxResultBytes: number;
  minSharedTokens: number;
  maxStepsPerRequest: number;
  maxCopies: number;
  maxKvTransferBytes: number;
  maxKvBlocksPerCall: number;
  maxDraftTokens: number;
  rowStateBytes: number;
  maxSessionBlocks: number;
}

export interface Bucket {
  name: string;
  kind: string;
  capacity: number;
  kernelNodes: number;
  otherNodes: number;
  captureNs: number;
  deviceBytes: number;
}

export interface Device {
  kind: string;
  name: string;
  driver: string;
  totalBytes: number;
}

export interface Memory {
  weightsBytes: number;
  kvCacheBytes: number;
  workspaceBytes: number;
  graphsBytes: number;
  swapBytes: number;
  exportBytes: number;
}

export interface AttentionTree {
  version: number;
  batchInvariant: boolean;
  text: string;
  rowLeaves: string[];
  batchLeaves: string[];
}

export interface KvLayout {
  version: number;
  numLayers: number;
  numKvHeads: number;
  headDim: number;
  blockSize: number;
  dtype: string;
  model: Buffer;
}

export interface SessionStatus {
  id: number;
  identity: string;
  peer: string;
  client: string;
  ageMs: number;
  idleMs: number;
  attached: boolean;
  resumeGraceMs: number;
  graceLeftMs: number;
  rows: number;
  blocks: number;
  lastSequence: number;
  requests: number;
  jointRequests: number;
  swappedBlocks: number;
  sharedBlocks: number;
}

export interface ReadBlocksResponse {
  layout: KvLayout | null;
  parts: KvPart[];
}

export interface KvPart {
  block: number;
  firstLayer: number;
  numLayers: number;
  numTokens: number;
  contents: Buffer;
  crc32: number;
}

export interface ReadTelemetryResponse {
  smClockMhz?: number;
  memoryClockMhz?: number;
  powerW?: number;
}

export interface ReloadFilesResponse {
  identitiesAdded: number;
  identitiesChanged: number;
  identitiesRemoved: number;
  sessionsEnded: number;
  tls: boolean;
}

export interface SetBucketsResponse {
  buckets: Bucket[];
  version: number;
  captureNs: number;
}

export interface SwapOutStateResponse {
  swappedState: number;
  contextLength: number;
  freeSwapStates: number;
}
