// SPDX-License-Identifier: Apache-2.0
// Writes types/messages.d.ts from the wire contract: node tools/write_types.js
// With --check it writes nothing, and fails where the file is not what it would write.
import {readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

import protobuf from 'protobufjs';

const proto = new URL('../../../proto/reprise/v1/step_service.proto', import.meta.url);
const file = new URL('../types/messages.d.ts', import.meta.url);
const head = `// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_types.js: the messages of proto/reprise/v1/step_service.proto as the
// client takes and gives them. Fields are in camelCase, enums by name, 64-bit numbers are numbers.
// A field of a request may be left out; a message that an answer does not have is null, and a field
// that is optional in the contract is left out.
`;

// The message and all that it has fields of, each once.
function reach(type, found = new Set()) {
  if (found.has(type)) return found;
  found.add(type);
  for (const field of type.fieldsArray) {
    const inner = field.resolve().resolvedType;
    if (inner instanceof protobuf.Type) reach(inner, found);
    else if (inner) found.add(inner);
  }
  return found;
}

function typeOf(field, isRequest) {
  const inner = field.resolvedType;
  let name = inner?.name;
  const bytes = isRequest ? 'Uint8Array' : 'Buffer';
  name ??= {bool: 'boolean', string: 'string', bytes}[field.type];
  name ??= isRequest && field.type === 'uint64' ? 'number | string' : 'number';
  if (field.repeated) return `${name}[]`;
  return !isRequest && inner instanceof protobuf.Type ? `${name} | null` : name;
}

function declare(type, isRequest) {
  if (type instanceof protobuf.Enum) {
    const names = Object.keys(type.values).map((name) => `\n  | '${name}'`);
    return `\nexport type ${type.name} =${names.join('')};\n`;
  }
  const fields = type.fieldsArray.map((field) => {
    const mark = isRequest || field.options?.proto3_optional ? '?' : '';
    return `  ${field.name}${mark}: ${typeOf(field, isRequest)};\n`;
  });
  return `\nexport interface ${type.name} {\n${fields.join('')}}\n`;
}

const contract = (await protobuf.load(fileURLToPath(proto))).lookup('reprise.v1');
const requests = reach(contract.lookupType('StepRequest'));
reach(contract.lookupType('KvRange'), requests);
const all = new Set(requests);
for (const name of [
  'StepResponse',
  'DescribeResponse',
  'SessionStatus',
  'ReadBlocksResponse',
  'ReadTelemetryResponse',
  'ReloadFilesResponse',
  'SetBucketsResponse',
  'SwapOutStateResponse',
]) {
  reach(contract.lookupType(name), all);
}
const text = head + [...all].map((type) => declare(type, requests.has(type))).join('');
if (!process.argv.includes('--check')) {
  writeFileSync(file, text);
} else if (readFileSync(file, 'utf8') !== text) {
  console.error('types/messages.d.ts: is not what the wire contract says: tools/write_types.js');
  process.exitCode = 1;
}
