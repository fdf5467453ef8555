// SPDX-License-Identifier: Apache-2.0
// Run by `npm pack`: the package brings the wire contract with it.
import {copyFileSync, mkdirSync} from 'node:fs';

const file = 'reprise/v1/step_service.proto';
mkdirSync(new URL('../proto/reprise/v1/', import.meta.url), {recursive: true});
copyFileSync(
  new URL(`../../../proto/${file}`, import.meta.url),
  new URL(`../proto/${file}`, import.meta.url),
);
