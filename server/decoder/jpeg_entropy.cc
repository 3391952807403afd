// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/jpeg_entropy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/base/check.h"

namespace batchd {
namespace {

constexpr int kBlockEnd = 64;  // as a distance between places: there is no further coefficient
constexpr int kLastPlace = 63;

// Beyond any picture's DC; what follows would be libjpeg's to judge.
constexpr int kDcMax = 1 << 28;

// The value that JPEG writes in `size` bits. There is none nearer to 0 than half the range, so that
// a first bit of 0 means a negative one.
constexpr int Extend(int bits, int size) {
  return size == 0 || bits >= 1 << (size - 1) ? bits : bits - (1 << size) + 1;
}

// An AC symbol is a run of zeros (the high half) and the size of the coefficient behind it. Without
// a coefficient it is a run of 16 zeros, or nothing else is in the block, whatever the run says.
constexpr int kSixteenZeros = 0xF0;
constexpr int SizeOf(int symbol) { return symbol & 15; }
constexpr int PlacesOf(int symbol) {
  const bool ends = SizeOf(symbol) == 0 && symbol != kSixteenZeros;
  return ends ? kBlockEnd : (symbol >> 4) + 1;
}

// From the order of coefficients in the data to their places in a block. A damaged picture may run
// beyond the end, where libjpeg takes everything for the last one.
constexpr std::array<uint8_t, 2 * kBlockEnd> MakeNaturalOrder() {
  std::array<uint8_t, 2 * kBlockEnd> order = {};
  order.fill(kLastPlace);
  size_t at = 0;
  for (int diagonal = 0; diagonal < 15; ++diagonal) {
    for (int i = 0; i <= diagonal; ++i) {
      const int row = diagonal % 2 == 0 ? diagonal - i : i;
      const int column = diagonal - row;
      if (row < 8 && column < 8) order[at++] = static_cast<uint8_t>(8 * row + column);
    }
  }
  return order;
}
constexpr std::array<uint8_t, 2 * kBlockEnd> kNaturalOrder = MakeNaturalOrder();

// Output columns of an MCU.
int McuWidth(const jpeg_decompress_struct& info) {
#if JPEG_LIB_VERSION >= 70
  return info.max_h_samp_factor * info.min_DCT_h_scaled_size;
#else
  return info.max_h_samp_factor * info.min_DCT_scaled_size;
#endif
}

}  // namespace

// ---- tables

// Nothing to do for the table of the picture before. libjpeg has checked it: its codes fit into 16
// bits.
void JpegEntropy::Make(const JHUFF_TBL& from, bool is_ac, Table* table) {
  if (table->is_made && std::equal(table->counts.begin() + 1, table->counts.end(), from.bits + 1) &&
      std::equal(table->symbols.begin(), table->symbols.end(), from.huffval)) {
    return;
  }
  table->is_made = true;
  std::copy(from.bits, from.bits + table->counts.size(), table->counts.begin());
  std::copy(from.huffval, from.huffval + table->symbols.size(), table->symbols.begin());
  MakeFirsts(is_ac, table);
  if (is_ac) {
    MakeSkips(table);
    MakeSeconds(table);
  }
}

void JpegEntropy::MakeFirsts(bool is_ac, Table* table) {
  table->next.fill({});
  int code = 0;
  int index = 0;
  for (int length = 1; length <= kCodeBitsMax; ++length, code <<= 1) {
    table->offset[length] = index - code;
    for (int i = 0; i < table->counts[length]; ++i, ++index, ++code) {
      if (length > kLookBits) continue;
      const int symbol = table->symbols[index];
      const int size = SizeOf(symbol);
      const int places = is_ac ? PlacesOf(symbol) : 0;
      const int free_bits = kLookBits - length;
      const auto first_place_count = static_cast<uint8_t>(places);
      Next* const next = &table->next[static_cast<size_t>(code) << free_bits];
      for (int rest = 0; rest < 1 << free_bits; ++rest) {
        if (size > free_bits) {
          next[rest] = {
              0, 0, static_cast<uint8_t>(length), first_place_count, static_cast<int16_t>(size), 0};
          continue;
        }
        const auto bit_count = static_cast<uint8_t>(length + size);
        const auto value = static_cast<int16_t>(Extend(rest >> (free_bits - size), size));
        next[rest] = {bit_count, first_place_count, bit_count, first_place_count, value, value};
      }
    }
    table->limit[length] = static_cast<uint32_t>(code) << (kCodeBitsMax - length);
  }
}

// Adds a second code where there is room.
void JpegEntropy::MakeSeconds(Table* table) {
  for (size_t bits = 0; bits < kLookSize; ++bits) {
    Next& next = table->next[bits];
    if (next.bit_count == 0 || next.first_place_count == kBlockEnd) continue;
    const Next& second = table->next[(bits << next.first_bit_count) % kLookSize];
    const int bit_count = next.first_bit_count + second.first_bit_count;
    if (second.bit_count == 0 || bit_count > kLookBits) continue;
    next.bit_count = static_cast<uint8_t>(bit_count);
    next.place_count = static_cast<uint8_t>(next.first_place_count + second.first_place_count);
    next.last_value = second.first_value;
  }
}

void JpegEntropy::MakeSkips(Table* table) {
  for (size_t bits = 0; bits < kLookSize; ++bits) {
    Skip skip = {0, 0, kBlockEnd};
    while (skip.place_count < kLastPlace) {
      const Next& next = table->next[(bits << skip.bit_count) % kLookSize];
      const int bit_count = skip.bit_count + next.first_bit_count;
      if (next.bit_count == 0 || bit_count > kLookBits) break;
      skip = {static_cast<uint8_t>(bit_count),
              static_cast<uint8_t>(skip.place_count + next.first_place_count), skip.place_count};
    }
    table->skip[bits] = skip;
  }
}

// ---- bits

// Gives 56 bits or more, if the data have that many.
inline void JpegEntropy::Reader::Fill() {
  constexpr uint64_t kLowBits = 0x0101010101010101;
  constexpr uint64_t kHighBits = 0x8080808080808080;
  if (end - next >= 8) {
    uint64_t word;
    std::memcpy(&word, next, sizeof(word));
    const bool has_ff = ((~word - kLowBits) & word & kHighBits) != 0;
    if (!has_ff) {
      // Not exhausted, or a marker's FF would be here: bit_count is not negative.
      if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
      buffer |= word >> bit_count;
      next += (63 - bit_count) >> 3;
      bit_count |= 56;
      return;
    }
  }
  *this = FillSlowly(*this);
}

// Byte by byte: FF 00 is a byte FF, and any other FF begins a marker, at which the data end.
JpegEntropy::Reader JpegEntropy::Reader::FillSlowly(Reader reader) {
  while (reader.bit_count <= 56 && reader.next < reader.end) {
    const uint8_t byte = *reader.next;
    if (byte == 0xFF) {
      if (reader.end - reader.next < 2 || reader.next[1] != 0) break;
      ++reader.next;
    }
    ++reader.next;
    reader.buffer |= static_cast<uint64_t>(byte) << (56 - reader.bit_count);
    reader.bit_count += 8;
  }
  return reader;
}

// 0 to 15 bits.
inline int JpegEntropy::Reader::TakeValue(int size) {
  const int bits = static_cast<int>(buffer >> 1 >> (63 - size));
  Take(size);
  return Extend(bits, size);
}

// ---- codes

// A code that is longer than the looked-up bits, without its value.
JpegEntropy::Next JpegEntropy::FindLongCode(const Table& table, uint64_t buffer) {
  const auto bits = static_cast<uint32_t>(buffer >> (64 - kCodeBitsMax));
  for (int length = kLookBits + 1; length <= kCodeBitsMax; ++length) {
    if (bits >= table.limit[length]) continue;
    const int code = static_cast<int>(bits >> (kCodeBitsMax - length));
    const int symbol = table.symbols[static_cast<size_t>(code + table.offset[length]) & 0xFF];
    return {0,
            0,
            static_cast<uint8_t>(length),
            static_cast<uint8_t>(PlacesOf(symbol)),
            static_cast<int16_t>(SizeOf(symbol)),
            0};
  }
  return {0, 0, 0, kBlockEnd, 0, 0};
}

// Takes the code of something that is not whole within the looked-up bits; its value, of
// first_value bits, comes next.
inline JpegEntropy::Next JpegEntropy::TakeCode(const Table& table, const Next& looked_up,
                                               Reader* reader) {
  Next next = looked_up;
  if (next.first_bit_count == 0) {
    next = FindLongCode(table, reader->buffer);
    if (next.first_bit_count == 0) {  // there is none: this picture is to be given up
      reader->next = reader->end;
      reader->bit_count = -1000;
    }
  }
  reader->Take(next.first_bit_count);
  return next;
}

inline int JpegEntropy::TakeDifference(const Table& table, Reader* reader) {
  reader->Fill();
  const Next& next = table.next[reader->Look()];
  if (next.bit_count != 0) {
    reader->Take(next.bit_count);
    return next.first_value;
  }
  return reader->TakeValue(TakeCode(table, next, reader).first_value);
}

// The 63 coefficients behind the first, into a block of zeros. What ends a block, or is zeros
// alone, writes a zero where one is: nothing was written at that place or behind it before.
inline void JpegEntropy::TakeBlock(const Table& table, Reader* reader, JCOEF* block) {
  // What two looks leave of a fill is enough for the longest code and value.
  constexpr int kLooksPerFill = 3;
  static_assert(56 - (kLooksPerFill - 1) * kLookBits >= kCodeBitsMax + 15);
  int place = 0;
  while (true) {
    reader->Fill();
    const Next* next;
    for (int i = 0; i < kLooksPerFill; ++i) {
      next = &table.next[reader->Look()];
      if (next->bit_count == 0) [[unlikely]]
        break;
      const int first_place = place + next->first_place_count;
      place += next->place_count;
      block[kNaturalOrder[first_place]] = next->first_value;
      if (first_place >= kLastPlace) [[unlikely]] {  // a second code is not this block's
        reader->Take(next->first_bit_count);
        return;
      }
      block[kNaturalOrder[place]] = next->last_value;
      reader->Take(next->bit_count);
      if (place >= kLastPlace) return;
    }
    if (next->bit_count != 0) continue;
    const Next code = TakeCode(table, *next, reader);
    place += code.first_place_count;
    block[kNaturalOrder[place]] = static_cast<JCOEF>(reader->TakeValue(code.first_value));
    if (place >= kLastPlace) return;
  }
}

inline void JpegEntropy::PassBlock(const Table& table, Reader* reader) {
  int place = 0;
  do {
    reader->Fill();
    const Skip& skip = table.skip[reader->Look()];
    // Otherwise the last of the codes is not this block's.
    if (place + skip.place_count_before_last < kLastPlace) [[likely]] {
      reader->Take(skip.bit_count);
      place += skip.place_count;
      continue;
    }
    const Next& next = table.next[reader->Look()];
    if (next.bit_count != 0) {
      reader->Take(next.first_bit_count);
      place += next.first_place_count;
    } else {
      const Next code = TakeCode(table, next, reader);
      reader->Take(code.first_value);
      place += code.first_place_count;
    }
  } while (place < kLastPlace);
}

// ---- MCUs

// Whether the data had all that was taken.
template <bool kIsWanted>
bool JpegEntropy::DecodeBlocks(int block_count, JBLOCKROW* blocks) {
  Reader reader = reader_;
  int32_t dc_bits = 0;  // of all magnitudes
  for (int i = 0; i < block_count; ++i) {
    const Block& block = blocks_[i];
    int32_t& last_dc = last_dc_[block.component];
    last_dc += TakeDifference(*block.dc, &reader);
    dc_bits |= last_dc < 0 ? -last_dc : last_dc;
    if constexpr (kIsWanted) {
      JCOEF* const out = *blocks[i];
      out[0] = static_cast<JCOEF>(last_dc);
      TakeBlock(*block.ac, &reader, out);
    } else {
      PassBlock(*block.ac, &reader);
    }
  }
  reader_ = reader;
  return reader.bit_count >= 0 && dc_bits < kDcMax;
}

boolean JpegEntropy::DecodeMcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  JpegEntropy& self = *reinterpret_cast<Hook*>(info->entropy)->self;
  bool is_good = true;
  if (info->restart_interval != 0) {
    if (self.mcus_to_restart_ == 0) {
      is_good = self.Restart();
      self.mcus_to_restart_ = info->restart_interval;
    }
    --self.mcus_to_restart_;
  }
  const int column = self.column_;
  self.column_ = column + 1 == self.column_count_ ? 0 : column + 1;
  if (blocks != nullptr && column >= self.first_column_ && column <= self.last_column_) {
    is_good = is_good && self.DecodeBlocks<true>(info->blocks_in_MCU, blocks);
  } else {
    is_good = is_good && self.DecodeBlocks<false>(info->blocks_in_MCU, blocks);
  }
  if (!is_good) {
    info->err->msg_code = kGaveUp;
    info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
  }
  return TRUE;
}

// Whether the next restart marker is right here, behind less than a byte that is left over.
bool JpegEntropy::Restart() {
  const bool is_here = reader_.bit_count < 8 && reader_.end - reader_.next >= 2 &&
                       reader_.next[0] == 0xFF && reader_.next[1] == JPEG_RST0 + next_restart_;
  if (!is_here) return false;
  reader_ = {reader_.next + 2, reader_.end, 0, 0};
  next_restart_ = (next_restart_ + 1) % 8;
  last_dc_.fill(0);
  return true;
}

bool JpegEntropy::TakeOver(jpeg_decompress_struct* info, int left, int width) {
  const bool is_sequential = !info->progressive_mode && !info->arith_code;
  if (!is_sequential || info->comps_in_scan != info->num_components) return false;
  // The MCUs of one component are single blocks, whatever its sampling says.
  if (info->num_components == 1 && info->comp_info[0].h_samp_factor != 1) return false;
  int block_count = 0;
  for (int i = 0; i < info->comps_in_scan; ++i) {
    const jpeg_component_info& component = *info->cur_comp_info[i];
    Table* const dc = &dc_tables_[component.dc_tbl_no];
    Table* const ac = &ac_tables_[component.ac_tbl_no];
    Make(*info->dc_huff_tbl_ptrs[component.dc_tbl_no], /*is_ac=*/false, dc);
    Make(*info->ac_huff_tbl_ptrs[component.ac_tbl_no], /*is_ac=*/true, ac);
    for (int k = 0; k < component.MCU_blocks; ++k) blocks_[block_count++] = {dc, ac, i};
  }
  BATCHD_CHECK(block_count == info->blocks_in_MCU);
  const int mcu_width = McuWidth(*info);
  first_column_ = left / mcu_width;
  last_column_ = (left + width - 1) / mcu_width;
  column_count_ = static_cast<int>(info->MCUs_per_row);
  column_ = 0;
  last_dc_.fill(0);
  mcus_to_restart_ = info->restart_interval;
  next_restart_ = 0;
  reader_ = {info->src->next_input_byte, info->src->next_input_byte + info->src->bytes_in_buffer, 0,
             0};
  hook_.base.start_pass = info->entropy->start_pass;
  hook_.base.decode_mcu = DecodeMcu;
  hook_.base.insufficient_data = FALSE;
  info->entropy = &hook_.base;
  return true;
}

}  // namespace batchd
