// SPDX-License-Identifier: Apache-2.0
//
// A Huffman decoder in the place of libjpeg's, for the commonest JPEG: sequential, with all
// components in one scan. It gives the same coefficients in less time, by tables that hold up to
// two codes together with the values behind them, and it passes over the blocks that nobody looks
// at, above a box and beside it, without storing anything and several codes at once. The rest of
// the work remains libjpeg's, which calls it as its own (jpegint.h).
//
// It never judges damage: where the data are not as they should be it gives up, and the picture is
// to be decoded again by libjpeg, which goes wrong at the same place and says how.

#pragma once

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t, and jpegint.h needs jpeglib.h.
#include <jpeglib.h>
#include <jpegint.h>
// clang-format on

#include <array>
#include <cstdint>

namespace batchd {

// Thread-compatible; one for each jpeg_decompress_struct, for many pictures.
class JpegEntropy {
 public:
  // The msg_code with which error_exit is called when it gives up; none of libjpeg's.
  static constexpr int kGaveUp = 9999;

  JpegEntropy() { hook_.self = this; }
  JpegEntropy(const JpegEntropy&) = delete;
  JpegEntropy& operator=(const JpegEntropy&) = delete;

  // Decodes the scan that jpeg_start_decompress has begun, of which no row has been read or skipped
  // yet. All bytes of the picture must be in info->src. Coefficients are made for the output
  // columns [left, left + width) alone, which are those of jpeg_crop_scanline.
  // Returns false, and libjpeg goes on by itself, if the picture is not of the kind above.
  // `this` must outlive the decoding.
  bool TakeOver(jpeg_decompress_struct* info, int left, int width);

 private:
  static constexpr int kLookBits = 10;  // bits that a table is indexed by
  static constexpr size_t kLookSize = size_t{1} << kLookBits;
  static constexpr int kCodeBitsMax = 16;

  // What comes next, by the next kLookBits bits: one code with its value, or two, if they are whole
  // within these bits. A coefficient's place counts from the one before it.
  struct Next {
    uint8_t bit_count;    // of all; 0: the first is not whole
    uint8_t place_count;  // to the last coefficient
    // Of the first; if it is not whole, the bits of its code alone (0: even that is longer).
    uint8_t first_bit_count;
    uint8_t first_place_count;
    int16_t first_value;  // if it is not whole, the size of the value in bits
    int16_t last_value;
  };
  // As many codes as are whole within the looked-up bits, without their values.
  struct Skip {
    uint8_t bit_count;
    uint8_t place_count;
    uint8_t place_count_before_last;  // kBlockEnd: not even one is whole
  };
  struct Table {
    bool is_made = false;
    std::array<uint8_t, kCodeBitsMax + 1> counts = {};  // as JHUFF_TBL.bits
    std::array<uint8_t, 256> symbols = {};
    std::array<Next, kLookSize> next = {};
    std::array<Skip, kLookSize> skip = {};  // of an AC table
    // For codes beyond kLookBits, by length: the first 16 bits that are beyond all codes of that
    // length, and what to add to a code for the place of its symbol.
    std::array<uint32_t, kCodeBitsMax + 1> limit = {};
    std::array<int, kCodeBitsMax + 1> offset = {};
  };
  struct Block {  // of an MCU
    const Table* dc;
    const Table* ac;
    int component;
  };

  // The place in the data. Decoding works on a copy, so that it lies in registers.
  struct Reader {
    const uint8_t* next = nullptr;
    const uint8_t* end = nullptr;
    uint64_t buffer = 0;  // the bits that come next, from the top; 0 behind the last
    int bit_count = 0;    // how many of them are data; negative if too many were taken

    void Fill();
    [[gnu::noinline]] static Reader FillSlowly(Reader reader);
    uint64_t Look() const { return buffer >> (64 - kLookBits); }
    void Take(int count) {
      buffer <<= count;
      bit_count -= count;
    }
    int TakeValue(int size);
  };

  // What libjpeg sees; `base` comes first, since libjpeg gives its address back.
  struct Hook {
    jpeg_entropy_decoder base = {};
    JpegEntropy* self = nullptr;
  };

  static void Make(const JHUFF_TBL& from, bool is_ac, Table* table);
  static void MakeFirsts(bool is_ac, Table* table);
  static void MakeSeconds(Table* table);
  static void MakeSkips(Table* table);

  static boolean DecodeMcu(j_decompress_ptr info, JBLOCKROW* blocks);
  template <bool kIsWanted>
  [[gnu::noinline]] bool DecodeBlocks(int block_count, JBLOCKROW* blocks);
  static int TakeDifference(const Table& table, Reader* reader);
  static void TakeBlock(const Table& table, Reader* reader, JCOEF* block);
  static void PassBlock(const Table& table, Reader* reader);
  static Next TakeCode(const Table& table, const Next& looked_up, Reader* reader);
  [[gnu::noinline]] static Next FindLongCode(const Table& table, uint64_t buffer);
  bool Restart();

  Hook hook_;
  Reader reader_;
  std::array<int32_t, MAX_COMPS_IN_SCAN> last_dc_ = {};
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks_ = {};
  int column_ = 0;  // of the next MCU
  int column_count_ = 0;
  int first_column_ = 0;  // MCUs beside these are passed over
  int last_column_ = 0;
  unsigned mcus_to_restart_ = 0;
  int next_restart_ = 0;

  std::array<Table, NUM_HUFF_TBLS> dc_tables_;
  std::array<Table, NUM_HUFF_TBLS> ac_tables_;
};

}  // namespace batchd
