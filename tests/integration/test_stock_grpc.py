# SPDX-License-Identifier: Apache-2.0
"""The gRPC door as a stranger uses it: grpcurl, and grpcio with nothing but the generated messages.

What they get must be the batches that a loader gets through shared memory at the same addresses.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import queue
import subprocess
import sys

import grpc
import numpy as np
import pytest
from google.protobuf import json_format

import batchd
from batchd import transforms as T
from batchd._proto import service_pb2, session_pb2

GRPCURL = os.path.join(os.path.dirname(sys.executable), "grpcurl")
METHOD = "/batchd.v1.BatchService/"
BATCH_SIZE, SEED = 24, 11
COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(20), T.RandomHorizontalFlip(),
                     T.ToTensor(), T.Normalize()],
           "label": T.Label()}
DTYPES = {"DATA_TYPE_FLOAT32": np.dtype("<f4"), "DATA_TYPE_INT64": np.dtype("<i8"),
          session_pb2.DATA_TYPE_FLOAT32: "<f4", session_pb2.DATA_TYPE_INT64: "<i8"}
# Reflection does not have it, and every other client brings its own.
HEALTH_PROTO = """syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }
"""


def grpcurl(daemon, *arguments: str, flags: tuple[str, ...] = (), data: object = None,
            ok: bool = True) -> str:
    """What grpcurl prints for a call; with ok=False what it says of a call that is refused."""
    said = [] if data is None else ["-d", json.dumps(data)]
    done = subprocess.run([GRPCURL, "-plaintext", *flags, *said, "-unix", f"{daemon.socket}.grpc",
                           *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


def open_json(root: pathlib.Path, **more: object) -> dict:
    """The message Open, as somebody types it who has read the .proto files."""
    return {
        "dataset": {"name": "ImageFolder", "arguments": {"root": str(root)}},
        "pipeline": {"columns": [
            {"name": "image", "operations": [
                {"name": "DecodeImage"},
                {"name": "RandomResizedCrop", "arguments": {"size": 20}},
                {"name": "RandomHorizontalFlip"}, {"name": "ToTensor"}, {"name": "Normalize"}]},
            {"name": "label", "operations": [{"name": "Label"}]}]},
        "sampling": {"seed": str(SEED), "shuffle": "SHUFFLE_FEISTEL",
                     "globalBatchSize": str(BATCH_SIZE), "lastBatch": "LAST_BATCH_PARTIAL"},
        **more,
    }


@pytest.fixture(scope="module")
def by_shared_memory(photos_256, tmp_path_factory) -> list[batchd.Batch]:
    """The first epoch and one step, as the loader gets them."""
    from daemon import Daemon
    with Daemon() as running, batchd.Loader(
            batchd.ImageFolder(str(photos_256)), COLUMNS, batch_size=BATCH_SIZE, shuffle=True,
            seed=SEED, last_batch="partial", address=running.address) as loader:
        assert loader.transport == "shm"
        return [batch.copy() for batch in loader.steps(len(loader) + 1)]


def test_grpcurl_lists_the_services(daemon):
    services = grpcurl(daemon, "list").split()

    assert {"batchd.v1.BatchService", "grpc.health.v1.Health"} <= set(services)
    assert any(name.startswith("grpc.reflection.") for name in services)


def test_grpcurl_describes_every_call_and_message(daemon):
    calls = grpcurl(daemon, "list", "batchd.v1.BatchService").split()

    assert calls == [f"batchd.v1.BatchService.{call}"
                     for call in ("Describe", "GetBatch", "GetStatus", "Stream")]
    for name in ("GetBatchRequest", "Open", "Address", "ServerMessage"):
        assert f"message {name} " in grpcurl(daemon, "describe", f"batchd.v1.{name}")


def test_grpcurl_sees_that_it_serves(daemon, tmp_path):
    (tmp_path / "health.proto").write_text(HEALTH_PROTO)
    flags = ("-import-path", str(tmp_path), "-proto", "health.proto")

    for service in ("", "batchd.v1.BatchService"):
        answer = json.loads(grpcurl(daemon, "grpc.health.v1.Health/Check", flags=flags,
                                    data={"service": service}))
        assert answer == {"status": "SERVING"}


def test_grpcurl_asks_for_the_status(daemon, photos_256):
    with batchd.Loader(batchd.ImageFolder(str(photos_256)), COLUMNS, batch_size=BATCH_SIZE,
                       name="job-a", address=daemon.address):
        status = json.loads(grpcurl(daemon, "batchd.v1.BatchService/GetStatus"))

    assert int(status["pid"]) == daemon.pid
    assert [s["job"] for s in status["sessions"]] == ["job-a"]
    assert status["sessions"][0]["transport"] == "TRANSPORT_SHM"
    assert status["sessions"][0]["source_name"] == str(photos_256)


@pytest.mark.parametrize("step", [0, 7, 10])
def test_grpcurl_fetches_the_batch_that_shared_memory_has(daemon, photos_256, by_shared_memory,
                                                          step):
    expected = by_shared_memory[step]

    answer = json.loads(grpcurl(
        daemon, "batchd.v1.BatchService/GetBatch", data={
            "open": open_json(photos_256),
            "address": {"epoch": "0", "step": str(step), "rank": 0, "worldSize": 1}}))

    assert int(answer["ready"]["rows"]) == expected.rows
    assert int(answer["ready"]["valid_rows"]) == expected.valid_rows
    assert [int(i) for i in answer["sample_ids"]] == expected.sample_ids.tolist()
    assert base64.b64decode(answer["row_status"]) == expected.row_status.tobytes()
    assert [c["layout"]["name"] for c in answer["columns"]] == ["image", "label"]
    for column in answer["columns"]:
        layout = column["layout"]
        shape = (expected.rows, *(int(d) for d in layout.get("shape", [])))
        values = np.frombuffer(base64.b64decode(column["values"]),
                               DTYPES[layout["data_type"]]).reshape(shape)
        wanted = expected[layout["name"]].numpy()
        assert values.dtype == wanted.dtype
        np.testing.assert_array_equal(values, wanted)


def test_grpcurl_is_told_which_field_is_wrong(daemon, photos_256):
    message = open_json(photos_256)
    message["pipeline"]["columns"][0]["operations"][1]["arguments"]["size"] = 0

    said = grpcurl(daemon, "batchd.v1.BatchService/GetBatch",
                   data={"open": message, "address": {"worldSize": 1}}, ok=False)

    assert "InvalidArgument" in said
    assert "pipeline.image[1].size" in said


@pytest.mark.parametrize(("part", "change", "said"), [
    ("dataset", {"name": "ImageFoldr"}, "dataset.name"),
    ("dataset", {"arguments": {}}, "dataset.root"),
    ("dataset", {"arguments": {"root": 5}}, "dataset.root"),
    ("pipeline", {"columns": []}, "pipeline.columns"),
    ("sampling", {"globalBatchSize": "0"}, "sampling.global_batch_size"),
    ("sampling", {"shuffle": 77}, "sampling.shuffle"),
    ("sampling", {"maxBadShare": "NaN"}, "sampling.max_bad_share"),
    ("address", {"step": "99"}, "start.step: 99"),
    ("address", {"epoch": "-1"}, "start.epoch: -1"),
    ("address", {"rank": 2}, "rank: 2"),
    ("address", {"worldSize": 0}, "world_size: 0"),
])
def test_what_is_wrong_is_refused_by_its_path_and_harms_nobody(daemon, channel, photos_256, part,
                                                               change, said):
    message = {"open": open_json(photos_256), "address": {"worldSize": 1}}
    (message if part == "address" else message["open"])[part].update(change)
    request = json_format.ParseDict(message, service_pb2.GetBatchRequest())

    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "GetBatch", request, service_pb2.GetBatchResponse)

    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert said in caught.value.details()
    assert daemon.get("/readyz") == "ok\n"


@pytest.fixture
def channel(daemon):
    with grpc.insecure_channel(f"unix:{daemon.socket}.grpc") as open_channel:
        yield open_channel


def unary(channel, call: str, request, response_type):
    return channel.unary_unary(METHOD + call, request_serializer=type(request).SerializeToString,
                               response_deserializer=response_type.FromString)(request, timeout=30)


class Stream:
    """A session by hand: what the comments of session.proto say and nothing more."""

    def __init__(self, channel: grpc.Channel, message: dict) -> None:
        self._outgoing: queue.SimpleQueue = queue.SimpleQueue()
        self._say({"open": message})
        self.responses = channel.stream_stream(
            METHOD + "Stream", request_serializer=service_pb2.StreamRequest.SerializeToString,
            response_deserializer=service_pb2.StreamResponse.FromString,
        )(iter(self._outgoing.get, None), timeout=60)
        self.opened = next(self.responses).message.opened

    def _say(self, message: dict) -> None:
        self._outgoing.put(json_format.ParseDict({"message": message}, service_pb2.StreamRequest()))

    def next(self, take: bool = True):
        """The next batch's Ready and slab image; it is taken and its slot given back, if wanted."""
        message = next(self.responses).message
        if message.WhichOneof("message") == "segment":  # for clients that map memory
            message = next(self.responses).message
        assert message.WhichOneof("message") == "ready", message
        ready = message.ready
        image = bytearray(ready.size_bytes)
        filled = 0
        while filled < ready.size_bytes:
            message = next(self.responses).message
            assert message.WhichOneof("message") == "chunk"
            chunk = message.chunk
            assert (chunk.sequence, chunk.offset_bytes) == (ready.sequence, filled)
            assert 0 < len(chunk.data) <= 1 << 20
            image[filled : filled + len(chunk.data)] = chunk.data
            filled += len(chunk.data)
        slot = {"segment": ready.segment, "slot": ready.slot, "sequence": str(ready.sequence)}
        if take:
            self._say({"take": slot})
            self._say({"release": slot})
        return ready, bytes(image)

    def cancel(self) -> None:
        self.responses.cancel()
        self._outgoing.put(None)

    def close(self) -> None:
        self._say({"close": {}})
        for _ in self.responses:
            pass  # what was on its way already
        assert self.responses.code() == grpc.StatusCode.OK
        self._outgoing.put(None)


def read_slab(opened, image: bytes) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Ids, row status and columns of a slab image: proto/shm/slab.h by offsets."""
    def at(offset: int, dtype: str) -> int:
        return int(np.frombuffer(image, dtype, 1, offset)[0])
    assert image[:4] == b"BLSB"
    rows = at(8, "<u4")
    ids = np.frombuffer(image, "<i8", rows, at(40, "<u8"))
    status = np.frombuffer(image, "u1", rows, at(48, "<u8"))
    columns = {}
    for index, layout in enumerate(opened.columns):
        shape = (rows, *layout.shape)
        values = np.frombuffer(image, DTYPES[layout.data_type], int(np.prod(shape)),
                               at(64 + 64 * index, "<u8"))
        columns[layout.name] = values.reshape(shape)
    return ids, status, columns


def test_a_stock_client_streams_the_batches_that_shared_memory_has(channel, photos_256,
                                                                   by_shared_memory):
    stream = Stream(channel, open_json(photos_256, worldSize=1, prefetch=3,
                                       transport="TRANSPORT_GRPC"))
    assert stream.opened.num_samples == 256
    assert stream.opened.steps_per_epoch == len(by_shared_memory) - 1

    for expected in by_shared_memory:
        ready, image = stream.next()
        ids, status, columns = read_slab(stream.opened, image)
        assert (ready.address.epoch, ready.address.step) == (expected.epoch, expected.step)
        assert (ready.rows, ready.valid_rows) == (expected.rows, expected.valid_rows)
        np.testing.assert_array_equal(ids, expected.sample_ids)
        np.testing.assert_array_equal(status, expected.row_status)
        for name, values in columns.items():
            np.testing.assert_array_equal(values, expected[name].numpy())
    stream.close()


def test_a_batch_above_a_channels_default_limit_comes_in_chunks(channel, photos_256):
    message = open_json(photos_256, worldSize=1, prefetch=1)
    message["pipeline"]["columns"][0]["operations"][1]["arguments"]["size"] = 160
    stream = Stream(channel, message)

    _, image = stream.next()

    assert len(image) > 4 << 20  # what grpcio accepts in one message
    assert read_slab(stream.opened, image)[2]["image"].shape == (BATCH_SIZE, 3, 160, 160)
    stream.close()


def test_describe_says_what_a_session_would_be_and_opens_none(daemon, channel, photos_256):
    request = service_pb2.DescribeRequest()
    json_format.ParseDict(open_json(photos_256, worldSize=2, prefetch=1), request.open)

    opened = unary(channel, "Describe", request, service_pb2.DescribeResponse).opened

    assert (opened.session_id, opened.num_samples, opened.num_classes) == (0, 256, 4)
    assert opened.rows_max == BATCH_SIZE // 2
    assert [list(c.shape) for c in opened.columns] == [[3, 20, 20], []]
    assert daemon.metric("batchd_sessions") == 0


def test_health_turns_to_not_serving_when_the_daemon_drains(daemon, channel, photos_256):
    def status() -> bytes:
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
    assert status() == b"\x08\x01"  # SERVING
    stream = Stream(channel, open_json(photos_256, worldSize=1, prefetch=1))
    stream.next(take=False)  # a drain waits for what lies ready

    daemon.process.terminate()
    while next(stream.responses).message.WhichOneof("message") != "draining":
        pass

    assert status() == b"\x08\x02"  # NOT_SERVING
    stream.close()
    assert daemon.process.wait(30) == 0
