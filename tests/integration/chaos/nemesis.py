# SPDX-License-Identifier: Apache-2.0
"""The faults, each one function of the arena and of dice, and the hand that deals them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence

import grpc
from arena import Arena
from google.protobuf import json_format
from raw_client import (
    READY,
    RELEASE,
    TAKE,
    answer_to,
    connect,
    fragment,
    hello,
    next_ready,
    open_message,
    opened,
    receive_all,
    say,
)
from test_stock_grpc import METHOD, Stream

from batchd._proto import service_pb2

Fault = Callable[[Arena, random.Random], None]
METHODS = ("Stream", "GetBatch", "Describe", "GetStatus", "NoSuchCall")
RPC_SECONDS = 20.0


def pause(seconds: float) -> None:
    """A moment of any length: it synchronises nothing."""
    select.select([], [], [], seconds)


def torment(arena: Arena, faults: Sequence[Fault], dice: random.Random) -> None:
    """Deals the faults one after the other, each at a random moment of the run."""
    for number, fault in enumerate(faults):
        arena.wait_for_batches(dice.randrange(1, 4))
        pause(dice.uniform(0, 0.02))
        print(f"strike {number}: {fault.__name__}", flush=True)
        fault(arena, dice)
    arena.wait_for_batches(3)


# Processes.


def kill_daemon(arena: Arena, dice: random.Random) -> None:
    arena.daemon.kill()
    pause(dice.choice([0, 0, 0.2]))
    arena.daemon.start()


def kill_trainer(arena: Arena, dice: random.Random) -> None:
    trainer = dice.choice(arena.trainers)
    trainer.kill()
    trainer.start()


def stop_daemon(arena: Arena, dice: random.Random) -> None:
    os.kill(arena.daemon.pid, signal.SIGSTOP)
    pause(dice.uniform(0.05, 0.4))
    os.kill(arena.daemon.pid, signal.SIGCONT)


def stop_trainer(arena: Arena, dice: random.Random) -> None:
    """The others go on meanwhile."""
    trainer = dice.choice(arena.trainers)
    trainer.process.send_signal(signal.SIGSTOP)
    try:
        others = [other for other in arena.trainers if other is not trainer]
        arena.wait_for_batches(dice.randrange(5, 15), others)
    finally:
        trainer.process.send_signal(signal.SIGCONT)


def drain(arena: Arena, dice: random.Random) -> None:
    assert arena.daemon.terminate() == 0
    pause(dice.choice([0, 0.2]))
    arena.daemon.start()


# Connections.


def cut_connections(arena: Arena, dice: random.Random) -> None:
    for proxy in dice.sample(arena.proxies, dice.choice([1, 2])):
        proxy.cut(dice)


def half_open_metrics(arena: Arena, dice: random.Random) -> None:
    """Connections to the metrics port that say nothing, or half of a request."""
    host, port = arena.daemon.http.rsplit(":", 1)
    with contextlib.ExitStack() as open_ones:
        for _ in range(dice.randrange(10, 24)):
            peer = socket.create_connection((host, int(port)), 10)
            open_ones.enter_context(peer)
            peer.sendall(dice.choice([b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: a\r\n",
                                      b"\x16\x03\x01" + dice.randbytes(40)]))
        begin = time.monotonic()
        assert "batchd_sessions" in arena.daemon.get("/metrics")
        print(f"a scrape among them took {time.monotonic() - begin:.2f} s")
        arena.wait_for_batches(1)


def _end_orderly(peer: socket.socket) -> None:
    ready = next_ready(peer)
    peer.send(answer_to(ready, TAKE) + answer_to(ready, RELEASE))
    peer.send(say({"close": {}}))
    receive_all(peer)


def _end_abruptly(peer: socket.socket, dice: random.Random) -> None:
    stage = dice.randrange(4)
    if stage >= 1:
        peer.recv(1 << 17)  # Opened
    if stage >= 2:
        ready = next_ready(peer)
        if stage == 3:
            peer.send(answer_to(ready, TAKE))  # a lease goes with it


def _grpc_sessions(arena: Arena, dice: random.Random, count: int) -> None:
    with grpc.insecure_channel(f"unix:{arena.daemon.socket}.grpc") as channel:
        for number in range(count):
            stream = Stream(channel, open_message(arena.root))
            if number % 2:
                stream.next()
                stream.close()
            else:
                if dice.random() < 0.5:
                    stream.next(take=False)
                stream.cancel()


def many_sessions(arena: Arena, dice: random.Random, count: int = 2000) -> None:
    """`count` sessions opened and closed, half of them abruptly, some by gRPC."""
    by_grpc, group = count // 20, 50
    for _ in range((count - by_grpc) // group):
        peers = [opened(arena.daemon.socket, arena.root) for _ in range(group)]
        dice.shuffle(peers)
        for number, peer in enumerate(peers):
            with peer:
                if number % 2:
                    _end_orderly(peer)
                else:
                    _end_abruptly(peer, dice)
    _grpc_sessions(arena, dice, by_grpc)


def some_sessions(arena: Arena, dice: random.Random) -> None:
    many_sessions(arena, dice, 200)


# Nonsense.


def damaged(data: bytes, dice: random.Random) -> bytes:
    """A few changes to `data`, each at a random place."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(out) + 1)
        what = dice.randrange(5)
        if what == 0 and out:
            out[at % len(out)] = dice.randrange(256)
        elif what == 1 and out:
            out[at % len(out)] ^= 1 << dice.randrange(8)
        elif what == 2:
            del out[at : at + dice.randrange(1, 9)]
        elif what == 3:
            out[at:at] = dice.choice([dice.randbytes(dice.randrange(1, 9)), b"9" * 20, b"[" * 80,
                                      b"-1", b'"', b"\xff\xff\xff\xff"])
        else:
            out[at:at] = out[: dice.randrange(1, 100)]
    return bytes(out)


def _conversation(arena: Arena) -> list[bytes]:
    """A short session, by a client that does not listen: sequences count from 1."""
    ready = bytes([READY]) + bytes(7) + (1).to_bytes(8, "little") + bytes(48)
    message = json.dumps({"open": open_message(arena.root)}).encode()
    cut = len(message) // 2
    return [hello(), fragment(message[:cut], 0, len(message)),
            fragment(message[cut:], 1, len(message)),
            say({"query": {"queryId": "1", "sampleNames": {"ordinals": ["0", "1"]}}}),
            answer_to(ready, TAKE), answer_to(ready, TAKE) + answer_to(ready, RELEASE),
            say({"seek": {"generation": 1, "position": {"epoch": "1", "step": "2"}}}),
            say({"close": {}})]


def malformed_datagrams(arena: Arena, dice: random.Random) -> None:
    for _ in range(100):
        datagrams = _conversation(arena)
        for _ in range(dice.randrange(1, 3)):
            at = dice.randrange(len(datagrams))
            what = dice.randrange(4)
            if what == 0:
                datagrams[at] = dice.randbytes(dice.choice([1, 8, 63, 64, 65, 4096, 65544]))
            elif what == 1:
                datagrams.insert(at, datagrams[dice.randrange(len(datagrams))])
            else:
                datagrams[at] = damaged(datagrams[at], dice)
        with connect(arena.daemon.socket) as peer:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for datagram in datagrams:
                    if datagram:
                        peer.send(datagram)
                peer.shutdown(socket.SHUT_WR)
            receive_all(peer)


def _requests(arena: Arena) -> list[bytes]:
    open_ = open_message(arena.root)
    stream = service_pb2.StreamRequest()
    json_format.ParseDict({"open": open_}, stream.message)
    batch = json_format.ParseDict({"open": open_, "address": {"worldSize": 1}},
                                  service_pb2.GetBatchRequest())
    return [stream.SerializeToString(), batch.SerializeToString(), b""]


def malformed_rpcs(arena: Arena, dice: random.Random) -> None:
    """Messages with damage to the gRPC door, and what is not even HTTP/2: each gets an answer."""
    path = f"{arena.daemon.socket}.grpc"
    requests = _requests(arena)
    with grpc.insecure_channel(f"unix:{path}") as channel:
        for _ in range(60):
            method = dice.choice(METHODS)
            sent = [dice.choice([dice.randbytes(dice.randrange(200)),
                                 damaged(dice.choice(requests), dice), requests[0]])
                    for _ in range(dice.randrange(1, 4))]
            call = channel.stream_stream(METHOD + method)
            try:
                for _ in call(iter(sent), timeout=RPC_SECONDS):
                    pass
            except grpc.RpcError as error:
                assert error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED,
                                            grpc.StatusCode.UNAVAILABLE), error
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for _ in range(10):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(dice.choice([b"", preface[: dice.randrange(24)], preface])
                             + dice.randbytes(dice.randrange(300)))
