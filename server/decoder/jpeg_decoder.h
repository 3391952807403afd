// SPDX-License-Identifier: Apache-2.0
//
// The JPEG decoder with a choice that its DecoderKind has made: for tests, which compare the two.

#pragma once

#include <memory>

#include "server/decoder/decoder.h"

namespace batchd {

// Who decodes the Huffman codes of a sequential picture; both give the same rows and errors.
enum class HuffmanBy { kOwn, kLibjpeg };

std::unique_ptr<ImageDecoder> MakeJpegDecoder(HuffmanBy huffman);

}  // namespace batchd
