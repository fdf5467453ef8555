// SPDX-License-Identifier: Apache-2.0
// Compiled by tests/types.test.js, and not run. A line behind @ts-expect-error must not compile.
import {Client, RepriseError, Session, StepRequest, rowsOf} from 'reprise-client';

export async function generate(client: Client): Promise<number[]> {
  const {pool, model} = await client.describe({timeoutMs: 1000});
  const session: Session = await client.openSession({name: 'types', resumeGraceMs: 1000});
  const blocks = await session.allocate(pool?.blockSize ?? 1);
  const first: StepRequest = {
    add: [{row: 1, blocks, sampling: {temperature: 0.5, seed: '18446744073709551615'}}],
    chunks: [{row: 1, tokens: [model?.vocabSize ?? 1], sample: true}],
  };
  // @ts-expect-error: no such field
  const wrong: StepRequest = {continueAl: true};
  // @ts-expect-error: tokens are numbers
  await session.step({chunks: [{row: 1, tokens: ['a']}]});
  const tokens: number[] = [];
  for await (const answer of session.run([first, wrong], {depth: 2})) {
    for (const row of rowsOf(answer)) {
      if (row.status === 'ROW_STATUS_RAN' && row.token !== undefined) tokens.push(row.token);
    }
  }
  const {layout, parts} = await session.readBlocks([{block: blocks[0]}, {block: 2, numLayers: 1}]);
  if (layout) await session.writeBlocks(layout, [{...parts[0], block: 3}]);
  const tickets: Buffer[] = await session.exportBlocks(blocks);
  const counts: number[] = await session.importBlocks(await session.adoptBlocks('name'), tickets);
  tokens.push(...counts, ...(await session.swapIn(await session.swapOut(blocks))));
  const version: number = await client.setAttentionTree('{}');
  const {smClockMhz} = await client.readTelemetry();
  // @ts-expect-error: a device may not report it
  tokens.push(version, (await client.reloadFiles()).identitiesAdded, smClockMhz);
  // @ts-expect-error: tickets are bytes
  await session.freeExported(['ticket']);
  // @ts-expect-error: sessions are opened by a client
  new Session();
  await session.close().catch((error: RepriseError) => console.error(error.status, error.sequence));
  return tokens;
}
