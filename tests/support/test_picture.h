// SPDX-License-Identifier: Apache-2.0
//
// A picture that owns its pixels, for tests.

#pragma once

#include <cstdint>
#include <vector>

#include "server/base/philox.h"
#include "tests/support/scalar_resample.h"

namespace batchd {

struct TestPicture {
  ImageSize size;
  std::vector<uint8_t> pixels;  // 8-bit RGB, dense

  TestPicture() = default;
  explicit TestPicture(ImageSize s) : size(s), pixels(size_t(s.height) * size_t(s.width) * 3) {}

  uint8_t* at(int y, int x) { return &pixels[(size_t(y) * size_t(size.width) + size_t(x)) * 3]; }
  const uint8_t* at(int y, int x) const { return const_cast<TestPicture*>(this)->at(y, x); }
  Picture view() { return {pixels.data(), size.height, size.width, int64_t{size.width} * 3}; }
  ConstPicture view() const {
    return {pixels.data(), size.height, size.width, int64_t{size.width} * 3};
  }
  ConstPicture part(const Box& box) const {
    return {at(box.top, box.left), box.height, box.width, int64_t{size.width} * 3};
  }
  bool operator==(const TestPicture&) const = default;
};

inline TestPicture NoisePicture(ImageSize size, Draws* draws) {
  TestPicture picture(size);
  for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(draws->NextU32());
  return picture;
}

}  // namespace batchd
