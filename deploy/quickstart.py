# SPDX-License-Identifier: Apache-2.0
"""What quickstart.sh runs: reads an epoch through shared memory, and one as any gRPC client would.

Usage: quickstart.py SOCKET IMAGES HTTP_ADDRESS
"""

from __future__ import annotations

import queue
import sys
import time
import urllib.request

import grpc
import numpy as np

import batchd
from batchd import transforms as T
from batchd._proto import service_pb2, session_pb2

BATCH_SIZE = 32
CROP = 224


def read_through_shared_memory(socket: str, images: str) -> tuple[int, float]:
    """Images read and seconds taken, by the loader that a training script uses."""
    loader = batchd.Loader(
        batchd.ImageFolder(images),
        {"image": [T.DecodeImage(), T.RandomResizedCrop(CROP)], "label": T.Label()},
        batch_size=BATCH_SIZE,
        shuffle=True,
        last_batch="partial",
        name="quickstart",
        address=f"unix:{socket}",
    )
    print(f"{loader!r}")
    count = 0
    brightness = 0.0
    start = time.perf_counter()
    for batch in loader:
        pixels = batch["image"].numpy()
        brightness += float(pixels[0].mean())
        count += len(pixels)
    seconds = time.perf_counter() - start
    print(f"classes {loader.classes}, mean brightness of each first row "
          f"{brightness / len(loader):.1f}")
    loader.close()
    return count, seconds


def open_request(images: str) -> service_pb2.StreamRequest:
    """The Open message that any client in any language would send."""
    request = service_pb2.StreamRequest()
    session = request.message.open
    session.dataset.name = "ImageFolder"
    session.dataset.arguments.update({"root": images})
    image = session.pipeline.columns.add(name="image")
    image.operations.add(name="DecodeImage")
    crop = image.operations.add(name="RandomResizedCrop")
    crop.arguments.update({"size": CROP})
    session.pipeline.columns.add(name="label").operations.add(name="Label")
    session.sampling.global_batch_size = BATCH_SIZE
    session.sampling.shuffle = 2  # SHUFFLE_FEISTEL
    session.sampling.last_batch = 3  # LAST_BATCH_PARTIAL
    session.world_size = 1
    session.prefetch = 4
    session.transport = session_pb2.TRANSPORT_GRPC
    session.job = "quickstart-grpc"
    return request


def read_through_grpc(socket: str, images: str) -> tuple[int, float]:
    """The same by a stock gRPC client: generated messages and a channel, nothing of batchd's."""
    outgoing: queue.SimpleQueue[service_pb2.StreamRequest | None] = queue.SimpleQueue()
    outgoing.put(open_request(images))
    count = 0
    start = time.perf_counter()
    with grpc.insecure_channel(f"unix:{socket}.grpc") as channel:
        stream = channel.stream_stream(
            "/batchd.v1.BatchService/Stream",
            request_serializer=service_pb2.StreamRequest.SerializeToString,
            response_deserializer=service_pb2.StreamResponse.FromString,
        )(iter(outgoing.get, None))
        ready = None
        image = np.empty(0, np.uint8)
        received = 0
        for response in stream:
            message = response.message
            kind = message.WhichOneof("message")
            if kind == "error":
                raise SystemExit(f"quickstart: {message.error.message}")
            if kind == "failure":
                raise SystemExit(f"quickstart: {message.failure.message}")
            if kind == "ready":
                ready, received = message.ready, 0
                if len(image) < ready.size_bytes:
                    image = np.empty(ready.size_bytes, np.uint8)
            elif kind == "chunk":
                data = np.frombuffer(message.chunk.data, np.uint8)
                image[message.chunk.offset_bytes : message.chunk.offset_bytes + len(data)] = data
                received += len(data)
                if ready is None or received < ready.size_bytes:
                    continue
                count += ready.rows
                slot = {"segment": ready.segment, "slot": ready.slot, "sequence": ready.sequence}
                for said in ({"take": slot}, {"release": slot}):
                    outgoing.put(service_pb2.StreamRequest(message=said))
                if ready.last_in_epoch:
                    break
        seconds = time.perf_counter() - start
        outgoing.put(None)
        stream.cancel()
    return count, seconds


def main() -> int:
    socket, images, http = sys.argv[1:4]
    shm_count, shm_seconds = read_through_shared_memory(socket, images)
    grpc_count, grpc_seconds = read_through_grpc(socket, images)
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    decoded = next(line for line in lines if line.startswith("batchd_samples_decoded_total"))
    print(f"shm   {shm_count} images  {shm_count / shm_seconds:.0f} images/s")
    print(f"grpc  {grpc_count} images  {grpc_count / grpc_seconds:.0f} images/s")
    print(decoded)
    return 0 if shm_count == grpc_count > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
