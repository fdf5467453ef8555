#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An independent client of the step service: Debian's Python and gRPC, the .proto file, and no code
of ours.

Starts `reprise serve` with a fixture model and checks that what comes over the wire is what Hugging
Face transformers said (reference.json), that refusals are typed, that a killed client leaves
nothing behind, and that SIGTERM ends all well.

  python_client_test.py --program build/host/reprise --stubs DIR --fixtures tests/fixtures

DIR holds reprise/v1/step_service_pb2.py as `protoc --python_out` writes it. Method stubs are
written out below.
"""
import argparse
import json
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

import grpc

FLAGS = argparse.Namespace()
pb = None  # the generated messages, once their directory is known

TIMEOUT_S = 120  # generous: the server may run under a sanitizer
CHUNK = 32  # prompt tokens per step


def eventually(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Client:
    """Method stubs by hand: grpc_tools may be missing."""

    def __init__(self, address):
        # What a server answers is bounded by Limits.max_result_bytes, which may be beyond gRPC's
        # default of 4 MiB.
        self.channel = grpc.insecure_channel(address,
                                             options=[("grpc.max_receive_message_length", -1)])

        def unary(name, request, response):
            return self.channel.unary_unary(
                "/reprise.v1.StepService/" + name,
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )

        self.describe = unary("Describe", pb.DescribeRequest, pb.DescribeResponse)
        self.step = unary("Step", pb.StepRequest, pb.StepResponse)
        self.allocate = unary("Allocate", pb.AllocateRequest, pb.AllocateResponse)
        self.free = unary("Free", pb.FreeRequest, pb.FreeResponse)
        self.read_blocks = unary("ReadBlocks", pb.ReadBlocksRequest, pb.ReadBlocksResponse)
        self.write_blocks = unary("WriteBlocks", pb.WriteBlocksRequest, pb.WriteBlocksResponse)
        self.step_stream = self.channel.stream_stream(
            "/reprise.v1.StepService/StepStream",
            request_serializer=pb.StepStreamRequest.SerializeToString,
            response_deserializer=pb.StepStreamResponse.FromString,
        )
        # HealthCheckRequest{} is no bytes at all; HealthCheckResponse{SERVING} is field 1 = 1.
        self.health = self.channel.unary_unary("/grpc.health.v1.Health/Check")

    def is_serving(self):
        try:
            return self.health(b"", timeout=TIMEOUT_S, wait_for_ready=True) == b"\x08\x01"
        except grpc.RpcError:
            return False

    def free_blocks(self):
        return self.describe(pb.DescribeRequest(), timeout=TIMEOUT_S).pool.free_blocks


class Session:
    """One StepStream call."""

    def __init__(self, client, first=None):
        self.client = client
        self.outgoing = queue.SimpleQueue()
        self.call = client.step_stream(iter(self.outgoing.get, None))
        first = first or pb.StepStreamRequest(open=pb.Open(client="python"))
        self.outgoing.put(first)
        self.first_answer = next(self.call)
        self.token = first.resume.session or self.first_answer.opened.session

    def send(self, step, sequence):
        step.sequence = sequence
        self.outgoing.put(pb.StepStreamRequest(step=step))

    def receive(self):
        return next(self.call)

    def allocate(self, count):
        request = pb.AllocateRequest(session=self.token, count=count)
        return list(self.client.allocate(request, timeout=TIMEOUT_S).blocks)

    def close(self):
        self.outgoing.put(None)
        for _ in self.call:
            pass
        return self.call.code()


class Server:
    """A `reprise serve` process on a unix socket and a TCP port."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="reprise-python-")
        self.socket = os.path.join(self.directory.name, "s")
        command = [FLAGS.program, "serve", "--model", os.path.join(FLAGS.fixtures, "llama-tiny")]
        command += ["--listen", "unix:" + self.socket, "--listen", "127.0.0.1:0"]
        command += ["--device", "host", "--kv-cache", "4MiB", "--max-rows", "8", "--block-size",
                    "5"]
        self.log = open(os.path.join(self.directory.name, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        found = []

        def port_is_told():
            with open(self.log.name, encoding="utf-8") as log:
                found[:] = re.findall(r"serving on .*(127\.0\.0\.1:\d+)", log.read())
            return found or self.process.poll() is not None

        if not eventually(port_is_told) or not found:
            raise RuntimeError("reprise serve did not start:\n" + self.output())
        self.tcp = found[0]

    def output(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        self.directory.cleanup()


def plan(prompts, tables, count):
    """Continuous batching, decided ahead: prompt i enters in step i, in chunks; a row leaves when
    `count` tokens have come.
    """
    steps = []
    left = {row: None for row in range(len(prompts))}
    while left:
        number = len(steps)
        step = pb.StepRequest()
        for row in sorted(left):
            prompt = prompts[row]
            begin = (number - row) * CHUNK
            if begin < 0:
                continue
            if begin == 0:
                step.add.add(row=row, blocks=tables[row])
            if begin < len(prompt):
                tokens = prompt[begin : begin + CHUNK]
                last = begin + CHUNK >= len(prompt)
                step.chunks.add(row=row, tokens=tokens, sample=last)
                if last:
                    left[row] = count - 1
            elif left[row] == 0:
                step.drop.append(row)
                del left[row]
            else:
                step.continue_all = True
                left[row] -= 1
        steps.append(step)
    return steps


class StepServiceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.client = Client("unix:" + cls.server.socket)
        with open(os.path.join(FLAGS.fixtures, "llama-tiny", "reference.json"),
                  encoding="utf-8") as file:
            cls.reference = json.load(file)
        cls.all_blocks = cls.client.free_blocks()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def generate(self, client):
        """All the reference's prompts in one batch, two steps in flight; tokens by row."""
        prompts = [entry["tokens"] for entry in self.reference["prompts"]]
        count = len(self.reference["prompts"][0]["greedy_tokens"])
        session = Session(client)
        block_size = client.describe(pb.DescribeRequest(), timeout=TIMEOUT_S).pool.block_size
        tables = [session.allocate(-(-(len(p) + count) // block_size)) for p in prompts]
        steps = plan(prompts, tables, count)
        tokens = {row: [] for row in range(len(prompts))}
        for number in range(len(steps) + 1):
            if number < len(steps):
                session.send(steps[number], number + 1)
            if number == 0:
                continue  # one ahead of what is read
            response = session.receive()
            self.assertEqual(response.WhichOneof("message"), "step", response)
            self.assertEqual(response.step.sequence, number)
            self.assertTrue(response.step.report.replayed)
            rows = response.step.rows
            for row, sampled, token in zip(rows.row, rows.sampled, rows.token):
                if sampled:
                    tokens[row].append(token)
        self.assertEqual(session.close(), grpc.StatusCode.OK)
        return tokens

    def test_describe(self):
        described = self.client.describe(pb.DescribeRequest(), timeout=TIMEOUT_S)
        self.assertEqual(described.model.architecture, "llama")
        self.assertEqual(described.model.vocab_size, self.reference["vocab_size"])
        self.assertEqual(list(described.model.eos_token_ids), [2])
        self.assertEqual(described.pool.block_size, 5)
        self.assertEqual(described.limits.max_rows, 8)
        self.assertEqual(described.api_version, "reprise.v1")
        self.assertEqual({bucket.kind for bucket in described.buckets}, {"decode", "mixed"})

    def test_tokens_are_those_of_the_reference(self):
        for address in ("unix:" + self.server.socket, self.server.tcp):
            with self.subTest(address=address):
                tokens = self.generate(Client(address))
                for row, entry in enumerate(self.reference["prompts"]):
                    self.assertEqual(tokens[row], entry["greedy_tokens"])

    def test_contents_of_blocks_are_as_documented_and_move(self):
        session = Session(self.client)
        first, second = session.allocate(2)
        step = pb.StepRequest(add=[pb.AddRow(row=1, blocks=[first])])
        step.chunks.add(row=1, tokens=[10, 11, 12, 13, 14], sample=True)
        session.send(step, 1)
        token = session.receive().step.rows.token[0]
        request = pb.ReadBlocksRequest(session=session.token, ranges=[pb.KvRange(block=first)])
        read = self.client.read_blocks(request, timeout=TIMEOUT_S)
        described = self.client.describe(pb.DescribeRequest(), timeout=TIMEOUT_S)
        self.assertEqual(read.layout, described.kv_layout)
        part = read.parts[0]
        self.assertEqual(part.num_tokens, 5)
        width = {"f32": 4, "bf16": 2, "f16": 2}[read.layout.dtype]
        self.assertEqual(len(part.contents), 2 * part.num_layers * read.layout.num_kv_heads * 5 *
                         read.layout.head_dim * width)
        head = struct.pack("<III", part.first_layer, part.num_layers, part.num_tokens)
        self.assertEqual(part.crc32, zlib.crc32(part.contents, zlib.crc32(head)))
        part.block = second
        write = pb.WriteBlocksRequest(session=session.token, layout=read.layout, parts=[part])
        self.client.write_blocks(write, timeout=TIMEOUT_S)
        # The same row over the other block: its last token runs anew.
        step = pb.StepRequest(drop=[1])
        step.add.add(row=2, blocks=[second], context_length=4)
        step.chunks.add(row=2, tokens=[14], sample=True)
        session.send(step, 2)
        self.assertEqual(session.receive().step.rows.token[0], token)
        part.crc32 ^= 1
        damaged = pb.WriteBlocksRequest(session=session.token, layout=read.layout, parts=[part])
        with self.assertRaises(grpc.RpcError) as refused:
            self.client.write_blocks(damaged, timeout=TIMEOUT_S)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.DATA_LOSS)
        self.assertEqual(session.close(), grpc.StatusCode.OK)

    def test_refused_step_is_answered_and_the_stream_goes_on(self):
        session = Session(self.client)
        blocks = session.allocate(2)
        bad = pb.StepRequest(add=[pb.AddRow(row=1, blocks=blocks)])
        bad.chunks.add(row=1, tokens=[10**6], sample=True)
        session.send(bad, 1)
        error = session.receive().error
        self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT.value[0])
        self.assertIn("1000000", error.message)
        bad.chunks[0].tokens[:] = [10]
        bad.copy_blocks[:] = blocks
        session.send(bad, 1)
        error = session.receive().error
        self.assertEqual(error.code, grpc.StatusCode.FAILED_PRECONDITION.value[0])
        self.assertIn("written no token", error.message)
        del bad.copy_blocks[:]
        bad.add[0].sampling.top_p = 2
        session.send(bad, 1)
        error = session.receive().error
        self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT.value[0])
        self.assertIn("top_p", error.message)
        bad.add[0].sampling.top_p = 0.5
        bad.add[0].sampling.top_k = 5
        session.send(bad, 1)
        self.assertEqual(session.receive().step.sequence, 1)
        self.assertEqual(session.close(), grpc.StatusCode.OK)

    def test_unary_step_shares_the_session(self):
        session = Session(self.client)
        step = pb.StepRequest(session=session.token, sequence=1)
        step.add.add(row=9, blocks=session.allocate(4))
        step.chunks.add(row=9, tokens=self.reference["prompts"][1]["tokens"], sample=True)
        response = self.client.step(step, timeout=TIMEOUT_S)
        self.assertEqual(response.rows.token[0], self.reference["prompts"][1]["greedy_tokens"][0])
        session.send(pb.StepRequest(continue_all=True), 2)
        token = session.receive().step.rows.token[0]
        self.assertEqual(token, self.reference["prompts"][1]["greedy_tokens"][1])
        session.close()
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.step(pb.StepRequest(session=session.token, sequence=1), timeout=TIMEOUT_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_session_outlives_a_stream_that_is_lost(self):
        prompt = self.reference["prompts"][1]
        opened = pb.StepStreamRequest(open=pb.Open(client="python", resume_grace_ms=20000))
        session = Session(self.client, opened)
        self.assertEqual(session.first_answer.opened.resume_grace_ms, 20000)
        step = pb.StepRequest(add=[pb.AddRow(row=9, blocks=session.allocate(4))])
        step.chunks.add(row=9, tokens=prompt["tokens"], sample=True)
        session.send(step, 1)
        tokens = [session.receive().step.rows.token[0]]
        session.call.cancel()
        session.outgoing.put(None)
        lost = pb.Resume(session=session.token, last_sequence=1)
        resumed = Session(Client(self.server.tcp), pb.StepStreamRequest(resume=lost))
        self.assertEqual(resumed.first_answer.resumed.last_sequence, 1)
        self.assertEqual(resumed.first_answer.resumed.num_answers, 0)
        resumed.send(pb.StepRequest(continue_all=True), 2)
        tokens.append(resumed.receive().step.rows.token[0])
        self.assertEqual(tokens, prompt["greedy_tokens"][:2])
        self.assertEqual(resumed.close(), grpc.StatusCode.OK)
        self.assertTrue(eventually(lambda: self.client.free_blocks() == self.all_blocks))

    def test_killed_client_leaves_nothing_behind(self):
        self.assertTrue(eventually(lambda: self.client.free_blocks() == self.all_blocks))
        for address in ("unix:" + self.server.socket, self.server.tcp):
            command = [sys.executable, __file__, "--stubs", FLAGS.stubs, "--hold", address]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
                self.assertEqual(victim.stdout.readline(), b"holding\n")
                self.assertEqual(self.client.free_blocks(), self.all_blocks - 7)
                victim.kill()
            self.assertTrue(eventually(lambda: self.client.free_blocks() == self.all_blocks))


class DrainTest(unittest.TestCase):
    def test_sigterm_answers_what_was_accepted_and_leaves_nothing(self):
        server = Server()
        try:
            client = Client("unix:" + server.socket)
            self.assertTrue(client.is_serving())
            session = Session(client)
            step = pb.StepRequest(add=[pb.AddRow(row=1, blocks=session.allocate(20))])
            step.chunks.add(row=1, tokens=[7, 8, 9], sample=True)
            session.send(step, 1)
            self.assertEqual(session.receive().step.sequence, 1)
            server.process.send_signal(signal.SIGTERM)
            with self.assertRaises(grpc.RpcError) as caught:
                session.receive()
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIn("draining", caught.exception.details())
            session.outgoing.put(None)
            self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.output())
            self.assertFalse(os.path.exists(server.socket))
        finally:
            server.stop()


def hold(address):
    """What the killed client does: takes rows and blocks, says so, and waits for its end."""
    session = Session(Client(address))
    step = pb.StepRequest(add=[pb.AddRow(row=1, blocks=session.allocate(7))])
    step.chunks.add(row=1, tokens=[7, 8, 9], sample=True)
    session.send(step, 1)
    session.receive()
    print("holding", flush=True)
    signal.pause()


def main():
    global pb
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", help="the reprise program")
    parser.add_argument("--fixtures", help="directory of the fixture models")
    parser.add_argument("--stubs", required=True, help="directory of the generated messages")
    parser.add_argument("--hold", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.parse_args(namespace=FLAGS)
    sys.path.insert(0, FLAGS.stubs)
    from reprise.v1 import step_service_pb2

    pb = step_service_pb2
    if FLAGS.hold:
        hold(FLAGS.hold)
    unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    main()
