// SPDX-License-Identifier: Apache-2.0
//
// A decoder turns the bytes of a picture into the rows of a region of it.
//
// Life of a picture: the bytes are recognised by their content, never by a name; ReadHeader gives
// the size, and with the draws that fixes the geometry; Decode then makes the rows of the box that
// the geometry needs, 8-bit RGB, from the top.
//
// What all decoders agree on: grey becomes three equal channels; alpha and colour keys are dropped;
// 16 bits become 8 by the high byte; CMYK becomes RGB as in Pillow; ICC profiles and gamma are
// ignored; pixels are as stored (EXIF orientation is told, not applied); of several pictures the
// first counts. What is wrong with a picture depends on its bytes and the box alone.
//
// A decoder computes: it opens nothing, starts no thread and asks the system for nothing but
// memory. In a decode worker the kernel would end it (confinement.h).
//
// Adding one: a file `<name>_decoder.cc` that defines a DecoderKind, its line in registry.cc and
// CMakeLists.txt, and a unit test. tests/conformance/decoder_suite.h runs over every kind.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/image/geometry.h"
#include "server/image/row_sink.h"
#include "server/image/scratch.h"

namespace batchd {

using Bytes = std::span<const uint8_t>;

// Limits of a plan; the same picture is refused or not on every machine.
struct DecodeLimits {
  int64_t pixels_max = 50'000'000;
  // For who takes damaged pictures: Decode goes on over damage as far as it can, and returns the
  // error after the last row that it could make.
  bool goes_on_over_damage = false;
};

// Reused for many pictures; each pool thread has its own. Thread-compatible.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  // The picture's size as stored. Allocates nothing that depends on the picture.
  // Errors: sample errors truncated, corrupt, unsupported, too_large (above limits.pixels_max,
  // naming both).
  virtual absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) = 0;

  // Puts the rows of `region`, which lies inside the picture, into `sink`, each region.width * 3
  // bytes. `bytes` are those of the last successful ReadHeader.
  // Errors: sample errors truncated, corrupt, unsupported, too_large (so many scans or bytes that
  // it would take long); RESOURCE_EXHAUSTED without memory. Some rows may have gone to the sink
  // before. Damage below the region's last row is not looked for, except that a JPEG without an
  // end marker after its scan is truncated.
  virtual absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) = 0;

  // Which way up the stored picture is, 1 to 8 as EXIF counts; 1 if it does not say, or says it
  // wrong. `bytes` are those of the last successful ReadHeader.
  virtual int Orientation(Bytes) { return 1; }
};

// A kind of picture. Plain data with static lifetime.
struct DecoderKind {
  std::string_view name;      // "jpeg"
  std::string_view sentence;  // for `batchd plugins`
  // Whether the bytes begin like a picture of this kind.
  bool (*matches)(Bytes bytes);
  std::unique_ptr<ImageDecoder> (*make)();
  // Name and version of the library, as it decides pixels: part of the decoder fingerprint.
  std::string (*build)();
};

// All kinds of this build, in the order in which they are asked.
std::span<const DecoderKind* const> DecoderKinds();

// 32 hexadecimal digits over every kind's build().
std::string DecoderFingerprint();

// The kind that matches, by content. Errors: sample errors empty (no bytes), unsupported (a
// format that is known by name but not in this build, naming it), not_an_image.
absl::StatusOr<const DecoderKind*> RecogniseImage(Bytes bytes);

// One decoder of each kind, made when first needed. Thread-compatible.
class DecoderSet {
 public:
  // With `for_all`, that one stands for every kind.
  explicit DecoderSet(std::unique_ptr<ImageDecoder> for_all = nullptr);
  ~DecoderSet();
  // As RecogniseImage; the decoder is owned by the set.
  absl::StatusOr<ImageDecoder*> For(Bytes bytes);

 private:
  const std::unique_ptr<ImageDecoder> for_all_;
  std::unique_ptr<std::unique_ptr<ImageDecoder>[]> decoders_;
};

}  // namespace batchd
