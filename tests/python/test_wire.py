# SPDX-License-Identifier: Apache-2.0
"""The client's records against the C++ headers, and the framing of messages."""

from __future__ import annotations

import re
import struct

import pytest
from conftest import ROOT

from batchd import wire
from batchd.errors import ProtocolError


def header(name: str) -> str:
    return (ROOT / "proto" / "shm" / name).read_text()


def constant(text: str, name: str) -> int:
    found = re.search(rf"\b{name} = ([^;]+);", text)
    assert found, name
    return eval(found[1].replace("'", ""))


# Widths of the C++ types, as a struct has them without padding.
CODES = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q"}


def format_of(text: str, name: str) -> str:
    body = re.search(rf"struct {name} {{(.*?)\n}};", text, re.S)
    assert body, name
    result = "<"
    for kind, member in re.findall(r"^\s+(uint\d+_t) ([\w\[\]]+);", body[1], re.M):
        count = re.search(r"\[(\d+)\]", member)
        result += CODES[kind] * (int(count[1]) if count else 1)
    return result


@pytest.mark.parametrize(
    ("file", "name", "ours"),
    [
        ("wire.h", "Record", wire.RECORD),
        ("wire.h", "FragmentHeader", wire.FRAGMENT),
        ("slab.h", "SlabHeader", wire.SLAB_HEADER),
        ("slab.h", "SlabColumn", wire.SLAB_COLUMN),
    ],
)
def test_records_are_those_of_the_headers(file: str, name: str, ours: struct.Struct) -> None:
    assert ours.format == format_of(header(file), name)


def test_record_has_the_fields_of_the_header_in_order() -> None:
    body = re.search(r"struct Record {(.*?)\n};", header("wire.h"), re.S)
    assert body
    assert list(wire.Record._fields) == re.findall(r"uint\d+_t (\w+);", body[1])


def test_constants_are_those_of_the_headers() -> None:
    text = header("wire.h")
    assert constant(text, "kHelloMagic") == wire.HELLO_MAGIC
    assert constant(text, "kProtocolVersion") == wire.PROTOCOL_VERSION
    assert constant(text, "kProtocolVersionMin") == wire.PROTOCOL_VERSION_MIN
    assert constant(text, "kFragmentBytesMax") == wire.FRAGMENT_BYTES_MAX
    assert constant(text, "kMessageBytesMax") == wire.MESSAGE_BYTES_MAX
    assert constant(text, "kRecordsPerDatagramMax") == wire.RECORDS_PER_DATAGRAM_MAX
    assert constant(header("slab.h"), "kSlabMagic") == wire.SLAB_MAGIC
    assert constant(header("slab.h"), "kSlabVersion") == wire.SLAB_VERSION


def test_a_long_message_travels_in_fragments_and_arrives_whole() -> None:
    message = {"query": {"sampleNames": {"ordinals": ["7"] * 60_000}}}

    parts = list(wire.fragments(message))

    assert len(parts) > 2
    assert all(len(part) <= wire.FRAGMENT_BYTES_MAX + 8 for part in parts)
    assembler = wire.Assembler()
    results = [assembler.add(memoryview(part)) for part in parts]
    assert results == [None] * (len(parts) - 1) + [message]


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="above the limit of 1048576"):
        list(wire.fragments({"open": {"job": "x" * wire.MESSAGE_BYTES_MAX}}))


def fragment(body: bytes, last: int = 1, size: int | None = None) -> memoryview:
    size = len(body) if size is None else size
    return memoryview(wire.FRAGMENT.pack(wire.JSON_BYTE, last, 0, size) + body)


@pytest.mark.parametrize(
    ("datagram", "words"),
    [
        (memoryview(b"J"), "no header"),
        (fragment(b"{}", size=3), "has ended after 2"),
        (fragment(b"{}", size=1), "too long"),
        (fragment(b"{}", size=2**31, last=0), "too long"),
        (fragment(b"{"), "not JSON"),
        (fragment(b"[]"), "no JSON object"),
    ],
)
def test_a_broken_message_is_refused(datagram: memoryview, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        wire.Assembler().add(datagram)


def test_hello_is_that_of_the_header() -> None:
    assert wire.pack_hello() == b"Hbatchd1" + struct.pack("<HHIQ", 1, 1, 0, 0) + bytes(40)
    assert wire.check_hello(wire.pack_hello()) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "24 bytes"),
        (bytes(64), "no batchd daemon"),
        (wire.pack_hello(3, 4), "versions 3 to 4, this client 1 to 1; install"),
        (wire.pack_hello(2, 2), "versions 2 to 2"),
    ],
)
def test_another_hello_is_refused_with_words(answer: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        wire.check_hello(answer)
