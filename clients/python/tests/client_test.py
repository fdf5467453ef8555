#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client against `reprise serve` with a fixture model.

  client_test.py --program build/host/reprise --source REPOSITORY

Says "SKIPPED: " and the reason where grpc is missing.
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import google.protobuf  # noqa: F401
    import grpc
except ImportError as missing:
    print(f"SKIPPED: {sys.executable}: {missing} (Debian: python3-grpcio)")
    sys.exit(0)

import reprise_client as client_package
from reprise_client import Client, Tls, pb, rows_of
from server import TIMEOUT_S, Proxy, Server, make_identities

FLAGS = argparse.Namespace()
TOKEN = "a-token-for-tests-0123456789"


def setUpModule():
    global SERVER, REFERENCE
    allowed = ("--allow-administration", "--allow-attention-trees")
    SERVER = Server(FLAGS.program, FLAGS.model, *allowed)
    with open(os.path.join(FLAGS.model, "reference.json"), encoding="utf-8") as file:
        REFERENCE = json.load(file)["prompts"]


def tearDownModule():
    code = SERVER.stop()
    if code != 0:
        raise AssertionError(f"reprise serve: exit code {code}")


async def add_prompt(session, row, entry):
    """The step that adds the reference's prompt as a row, with blocks for all of its tokens."""
    step = pb.StepRequest()
    step.add.add(row=row, blocks=await session.allocate(24))
    step.chunks.add(row=row, tokens=entry["tokens"], sample=True)
    return step


def tokens_of(answers):
    return [result.token for answer in answers for result in rows_of(answer)]


class ClientTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = Client(SERVER.socket)

    async def asyncTearDown(self):
        await self.client.close()

    async def wait_until_all_blocks_are_free(self):
        for _ in range(TIMEOUT_S * 50):
            pool = (await self.client.describe(timeout_s=TIMEOUT_S)).pool
            if pool.free_blocks == pool.num_blocks - 1:  # all but the scratch block
                return
            await asyncio.sleep(0.02)
        self.fail(f"free blocks: {pool.free_blocks} of {pool.num_blocks}, expected all but one")

    async def test_describes_what_is_served(self):
        self.assertTrue(await self.client.is_serving(TIMEOUT_S))
        described = await self.client.describe()
        self.assertEqual(described.model.architecture, "llama")
        self.assertEqual(described.pool.block_size, 5)

    async def test_pipelined_steps_give_the_tokens_of_the_reference(self):
        for address in (SERVER.socket, SERVER.tcp):
            async with Client(address) as client:
                async with await client.open_session("python") as session:
                    entry = REFERENCE[1]
                    steps = [await add_prompt(session, 1, entry)]
                    steps += [pb.StepRequest(continue_all=True) for _ in entry["greedy_tokens"][1:]]
                    answers = [answer async for answer in session.run(steps)]
                self.assertEqual(tokens_of(answers), entry["greedy_tokens"])
                self.assertEqual([a.sequence for a in answers], list(range(1, len(answers) + 1)))
                await self.wait_until_all_blocks_are_free()

    async def test_refused_steps_raise_typed_errors_and_the_session_goes_on(self):
        async with await self.client.open_session("python") as session:
            good = await add_prompt(session, 1, REFERENCE[1])
            bad = pb.StepRequest()
            bad.CopyFrom(good)
            bad.chunks[0].tokens[0] = 10**6
            with self.assertRaisesRegex(client_package.InvalidArgument, "1000000") as refused:
                await session.step(bad)
            self.assertEqual(refused.exception.code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual((refused.exception.sequence, refused.exception.behind), (1, None))
            answer = await session.step(good)
            self.assertEqual(tokens_of([answer]), REFERENCE[1]["greedy_tokens"][:1])
            with self.assertRaises(client_package.NotFound):
                await session.step(pb.StepRequest(continue_rows=[99]))
            with self.assertRaises(client_package.ResourceExhausted):
                await session.allocate(10**6)
            with self.assertRaises(client_package.FailedPrecondition):
                await session.free(list(good.add[0].blocks))
            with self.assertRaises(client_package.AlreadyExists):
                again = pb.StepRequest(chunks=good.chunks)
                again.add.add(row=1, blocks=await session.allocate(1))
                await session.step(again)

    async def test_blocks_are_shared_read_written_swapped_and_exported(self):
        folder = tempfile.mkdtemp(prefix="reprise-python-")
        exchange = ["--kv-exchange", folder, "--export-space", "64KiB", "--swap-space", "64KiB"]
        server = Server(FLAGS.program, FLAGS.model, *exchange)
        entry = REFERENCE[1]
        length = len(entry["tokens"])
        try:
            async with Client(server.socket) as client:
                session = await client.open_session("one")
                answer = await session.step(await add_prompt(session, 1, entry))
                self.assertEqual(tokens_of([answer]), entry["greedy_tokens"][:1])
                first = (await session.read_blocks([pb.KvRange(block=b) for b in range(1, 25)]))
                filled = [part.block for part in first.parts if part.num_tokens]
                tickets = await session.export_blocks(filled)
                await session.step(pb.StepRequest(drop=[1]))

                async def go_on(other, blocks):
                    step = pb.StepRequest()
                    blocks = blocks + await other.allocate(2)
                    step.add.add(row=2, blocks=blocks, context_length=length)
                    step.chunks.add(row=2, tokens=entry["greedy_tokens"][:1], sample=True)
                    tokens = tokens_of([await other.step(step)])
                    await other.step(pb.StepRequest(drop=[2]))
                    self.assertEqual(tokens, entry["greedy_tokens"][1:2])

                await go_on(session, filled)
                swapped = await session.swap_out(filled)
                filled = await session.swap_in(swapped)
                await go_on(session, filled)
                with self.assertRaises(client_package.PermissionDenied):
                    await session.free_swapped(swapped)
                with self.assertRaisesRegex(
                    client_package.FailedPrecondition, "nothing beside their KV"
                ):
                    await session.swap_out_state(1)

                other = await client.open_session("two")
                blocks = await other.allocate(len(filled))
                counts = await other.import_blocks(blocks, tickets)
                self.assertEqual(sum(counts), length)
                await go_on(other, blocks)
                await session.free_exported(tickets)
                with self.assertRaises(client_package.NotFound):
                    await other.import_blocks(blocks, tickets)

                parts = [part for part in first.parts if part.num_tokens]
                for part, block in zip(parts, blocks):
                    part.block = block
                await other.write_blocks(first.layout, parts)
                await go_on(other, blocks)

                whole = [part.block for part in parts if part.num_tokens == 5]
                await other.share_blocks("begin", whole)
                self.assertEqual(await session.adopt_blocks("begin"), whole)
                with self.assertRaises(client_package.FailedPrecondition):
                    await other.share_blocks("again", whole)
                await session.release_blocks("begin")
                with self.assertRaises(client_package.NotFound):
                    await session.release_blocks("begin")
                await other.close()
                await session.close()
        finally:
            self.assertEqual(server.stop(), 0)
            os.rmdir(folder)

    async def test_session_resumes_after_a_lost_connection(self):
        proxy = Proxy(SERVER.tcp)
        async with Client(await proxy.start()) as client:
            entry = REFERENCE[1]
            session = await client.open_session("python", resume_grace_s=20)
            self.assertEqual(session.resume_grace_s, 20)
            answers = [await session.step(await add_prompt(session, 1, entry))]
            for i in range(1, len(entry["greedy_tokens"])):
                sent = await session.send(pb.StepRequest(continue_all=True))
                if i % 3 == 0:
                    proxy.cut()  # with a step in flight
                answers.append(await asyncio.wait_for(sent, TIMEOUT_S))
            self.assertEqual(tokens_of(answers), entry["greedy_tokens"])
            await session.close()
        proxy.stop()
        await self.wait_until_all_blocks_are_free()

    async def test_session_without_grace_time_ends_with_its_connection(self):
        proxy = Proxy(SERVER.tcp)
        async with Client(await proxy.start()) as client:
            session = await client.open_session("python")
            await session.step(await add_prompt(session, 1, REFERENCE[1]))
            proxy.cut()
            with self.assertRaises(client_package.SessionEnded):
                for _ in range(100):
                    await session.step(pb.StepRequest(continue_all=True))
        proxy.stop()

    async def test_evicted_session_ends_with_the_reason(self):
        session = await self.client.open_session("to be evicted", resume_grace_s=20)
        await session.step(await add_prompt(session, 1, REFERENCE[1]))
        ids = [s.id async for s in self.client.list_sessions() if s.client == "to be evicted"]
        await self.client.evict_session(ids[0], "for the test")
        with self.assertRaisesRegex(client_package.SessionEnded, "for the test") as ended:
            for _ in range(100):
                await session.step(pb.StepRequest(continue_all=True))
        self.assertIn(ended.exception.code, (grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND))

    async def test_sets_buckets(self):
        before = await self.client.describe()
        mixed = [b.capacity for b in before.buckets if b.kind == "mixed"]
        answer = await self.client.set_buckets(decode=[3], mixed=mixed)
        self.assertEqual(answer.version, before.buckets_version + 1)
        self.assertEqual([b.name for b in answer.buckets if b.kind == "decode"], ["decode/3"])
        with self.assertRaisesRegex(client_package.InvalidArgument, "got neither decode nor mixed"):
            await self.client.set_buckets()
        await self.client.set_buckets([b.capacity for b in before.buckets if b.kind == "decode"])

    async def test_replaces_the_attention_tree(self):
        before = (await self.client.describe()).attention_tree
        tree = json.loads(before.text)
        tree["batch"] = {"leaf": "all", "leaf_overhead": 0}
        version = await self.client.set_attention_tree(json.dumps(tree))
        self.assertEqual(version, before.version + 1)
        async with await self.client.open_session("python") as session:
            answer = await session.step(await add_prompt(session, 1, REFERENCE[1]))
            self.assertEqual(answer.report.attention_tree, version)
        self.assertEqual((await self.client.describe()).attention_tree.batch_leaves, ["all"])
        tree["batch"]["leaf_overhead"] = 7
        with self.assertRaisesRegex(
            client_package.InvalidArgument, 'batch: leaf "all": leaf_overhead is 7; allowed: '
        ):
            await self.client.set_attention_tree(json.dumps(tree))
        self.assertEqual(await self.client.set_attention_tree(before.text), version + 1)

    async def test_telemetry_leaves_out_what_the_device_does_not_report(self):
        telemetry = await self.client.read_telemetry()
        self.assertFalse(telemetry.HasField("power_w"))

    async def test_server_without_files_has_none_to_read_again(self):
        with self.assertRaisesRegex(
            client_package.FailedPrecondition, "without files of identities or TLS"
        ):
            await self.client.reload_files()

    async def test_send_waits_while_too_many_steps_are_unanswered(self):
        async with await self.client.open_session("python") as session:
            step = await add_prompt(session, 1, REFERENCE[1])
            sent = [await session.send(step)]
            while len(sent) < 3 * session.max_unanswered:
                sent.append(await session.send(pb.StepRequest(continue_all=True)))
            tokens = tokens_of([await answer for answer in sent])
            self.assertEqual(tokens, REFERENCE[1]["greedy_tokens"][: len(tokens)])
            with self.assertRaisesRegex(ValueError, "depth: got 0"):
                [answer async for answer in session.run([], depth=0)]

    async def test_steps_after_close_are_refused(self):
        session = await self.client.open_session("python")
        await session.close()
        with self.assertRaises(client_package.SessionEnded) as ended:
            await session.step(pb.StepRequest(continue_all=True))
        self.assertEqual(ended.exception.code, grpc.StatusCode.OK)

    async def test_server_that_answers_late_is_waited_for(self):
        proxy = Proxy(SERVER.tcp, delay_s=1.5)
        async with Client(await proxy.start()) as client:
            self.assertEqual((await client.describe()).model.architecture, "llama")
        proxy.stop()

    async def test_server_that_is_not_there_is_unavailable(self):
        async with Client("unix:/no/such/socket") as client:
            with self.assertRaises(client_package.Unavailable):
                await client.describe()
            self.assertFalse(await client.is_serving(0.1))


class FakeCall:
    """A stream whose answers the test gives."""

    def __init__(self):
        self.written = []
        self.answers = asyncio.Queue()

    async def write(self, message):
        self.written.append(message.step.sequence)

    async def read(self):
        return await self.answers.get()

    async def done_writing(self):
        self.answers.put_nowait(grpc.aio.EOF)

    def refuse(self, sequence, code):
        error = pb.StepError(sequence=sequence, code=code.value[0], message="for the test")
        self.answers.put_nowait(pb.StepStreamResponse(error=error))

    def answer(self, sequence):
        step = pb.StepResponse(sequence=sequence)
        self.answers.put_nowait(pb.StepStreamResponse(step=step))


class SequenceTest(unittest.IsolatedAsyncioTestCase):
    async def test_steps_behind_a_refused_one_are_refused_and_its_number_is_used_again(self):
        call = FakeCall()
        session = client_package.Session(None, call, pb.Opened(session=b"16 random bytes."), 4)
        first, second = [await session.send(pb.StepRequest()) for _ in range(2)]
        call.refuse(1, grpc.StatusCode.INVALID_ARGUMENT)
        with self.assertRaises(client_package.InvalidArgument):
            await first
        third = await session.send(pb.StepRequest())
        call.refuse(2, grpc.StatusCode.FAILED_PRECONDITION)
        with self.assertRaises(client_package.FailedPrecondition) as behind:
            await second
        self.assertEqual((behind.exception.sequence, behind.exception.behind), (2, 1))
        call.answer(1)
        self.assertEqual((await third).sequence, 1)
        fourth = await session.send(pb.StepRequest())
        call.answer(2)
        await fourth
        self.assertEqual(call.written, [1, 2, 1, 2])
        await session.close()


class RowsTest(unittest.TestCase):
    def test_columns_become_rows(self):
        rows = pb.RowResults(row=[4, 9], status=[1, 2], sampled=[True, False], token=[7, 0])
        rows.logprob.extend([-0.5, 0])
        rows.context_length.extend([3, 8])
        rows.num_top.extend([2, 0])
        rows.rank.extend([1, 0])
        rows.top_token.extend([7, 3])
        rows.top_logprob.extend([-0.5, -1])
        first, second = rows_of(pb.StepResponse(rows=rows))
        self.assertEqual((first.row, first.token, first.top), (4, 7, ((7, -0.5), (3, -1.0))))
        self.assertEqual((second.row, second.token, second.top), (9, None, ()))


class IdentityTest(unittest.IsolatedAsyncioTestCase):
    async def test_tls_and_bearer_tokens(self):
        with self.subTest("plain text"):
            with self.assertRaisesRegex(ValueError, "without TLS"):
                Client("example.org:50061", token=TOKEN)
        folder = pathlib.Path(SERVER.path)
        server = Server(FLAGS.program, FLAGS.model, *make_identities(str(folder), TOKEN))
        try:
            tls = Tls.from_files(ca=str(folder / "server.pem"))
            async with Client(server.tcp, token=TOKEN, tls=tls) as client:
                self.assertEqual((await client.describe()).model.architecture, "llama")
                async with await client.open_session("python") as session:
                    answer = await session.step(await add_prompt(session, 1, REFERENCE[1]))
                    self.assertEqual(tokens_of([answer]), REFERENCE[1]["greedy_tokens"][:1])
                with self.assertRaises(client_package.PermissionDenied):
                    await client.evict_session(1)
                with self.assertRaises(client_package.PermissionDenied):
                    await client.set_attention_tree("{}")
                with self.assertRaises(client_package.PermissionDenied):
                    await client.reload_files()
            async with Client(server.socket) as operator:
                tree = (await operator.describe()).attention_tree
                self.assertEqual(await operator.set_attention_tree(tree.text), tree.version + 1)
                change = await operator.reload_files()
                self.assertEqual((change.identities_changed, change.identities_removed), (0, 0))
                self.assertTrue(change.tls)
            for token in (None, "wrong"):
                async with Client(server.tcp, token=token, tls=tls) as client:
                    with self.assertRaises(client_package.Unauthenticated):
                        await client.open_session("python")
        finally:
            self.assertEqual(server.stop(), 0)


class ExampleTest(unittest.TestCase):
    def test_example_prints_the_tokens_of_the_reference(self):
        entries = REFERENCE[:2]
        count = len(entries[0]["greedy_tokens"])
        example = os.path.join(FLAGS.source, "clients/python/examples/generate.py")
        command = [sys.executable, example]
        command += ["--address", SERVER.socket, "--max-new-tokens", str(count)]
        for entry in entries:
            command += ["--tokens", ",".join(map(str, entry["tokens"]))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line, entry in zip(done.stdout.splitlines(), entries):
            expected = entry["greedy_tokens"]
            if 2 in expected:  # the model's end-of-text token
                expected = expected[: expected.index(2) + 1]
            self.assertEqual(line, ",".join(map(str, expected)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the reprise program")
    parser.add_argument("--source", required=True, help="the repository")
    parser.parse_args(namespace=FLAGS)
    FLAGS.model = os.path.join(FLAGS.source, "tests/fixtures/llama-tiny")
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    main()
