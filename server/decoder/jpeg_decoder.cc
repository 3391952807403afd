// SPDX-License-Identifier: Apache-2.0
//
// JPEG through libjpeg-turbo, with the settings of Pillow: accurate integer IDCT, smooth chroma.
//
// libjpeg goes on over damage with a warning and grey pixels. Here each such warning is an error,
// since a training run would never notice; where damage is to be taken it is so after the last row.

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t, and jerror.h needs jpeglib.h.
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "server/decoder/jpeg_decoder.h"

#include <algorithm>
#include <csetjmp>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/exif.h"
#include "server/decoder/jpeg_entropy.h"
#include "server/decoder/jpeg_memory.h"
#include "server/decoder/jpeg_scan.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

// What a picture may cost, told from its bytes before it is decoded; chosen to stay under 5 s on
// one core. A scan passes over all pixels again for as little as a few bytes, and dense ones cost
// by their bytes. Encoders write about 10 scans. Arithmetic coding is slower by the factors seen
// here.
constexpr int64_t kScansMax = 1000;
struct CodingLimits {
  std::string_view coding;
  int64_t pixel_scans;  // Pixels times scans.
  int64_t size_bytes;
};
constexpr CodingLimits kHuffmanLimits = {"Huffman", int64_t{12} << 26, int64_t{64} << 20};
constexpr CodingLimits kArithmeticLimits = {"arithmetic", int64_t{1} << 25, int64_t{8} << 20};

// More columns than the region on each side: chroma is smoothed over its neighbours.
constexpr int kMarginColumns = 16;

// Two bytes are enough to say "JPEG" if there are no more.
bool Matches(Bytes bytes) {
  if (bytes.size() < 2 || bytes[0] != 0xFF || bytes[1] != 0xD8) return false;
  return bytes.size() == 2 || bytes[2] == 0xFF;
}

// Where libjpeg's errors arrive. `base` comes first: libjpeg gives its address back.
struct ErrorTrap {
  jpeg_error_mgr base;
  std::jmp_buf back;
  bool goes_on = false;  // over damage: `code` keeps the first of it
  int code = 0;
  char text[JMSG_LENGTH_MAX] = {};
};

void Keep(j_common_ptr info) {
  auto* trap = reinterpret_cast<ErrorTrap*>(info->err);
  trap->code = info->err->msg_code;
  info->err->format_message(info, trap->text);
}

[[noreturn]] void Leave(j_common_ptr info) {
  Keep(info);
  std::longjmp(reinterpret_cast<ErrorTrap*>(info->err)->back, 1);
}

void LeaveOrGoOn(j_common_ptr info) {
  const auto* trap = reinterpret_cast<const ErrorTrap*>(info->err);
  if (!trap->goes_on) Leave(info);
  if (trap->code == 0) Keep(info);
}

bool IsHarmless(const jpeg_error_mgr& error) {
  switch (error.msg_code) {
    case JWRN_ADOBE_XFORM:     // Taken as YCbCr or YCCK.
    case JWRN_JFIF_MAJOR:      // A version number.
    case JWRN_NOT_SEQUENTIAL:  // Scan parameters that a sequential picture does not use.
      return true;
    case JWRN_EXTRANEOUS_DATA: {
      // Stray bytes between segments. Before a restart marker they mean that the blocks before it
      // ended too early, so some are wrong.
      const int marker = error.msg_parm.i[1];
      return marker < JPEG_RST0 || marker > JPEG_RST0 + 7;
    }
    default:
      return false;
  }
}

void OnMessage(j_common_ptr info, int level) {
  const bool is_warning = level < 0;  // The rest are traces.
  if (is_warning && !IsHarmless(*info->err)) LeaveOrGoOn(info);
}

void OnText(j_common_ptr) {}

void OnNothing(j_decompress_ptr) {}

// All bytes are in the buffer from the start, so this is the end of them. Who goes on finds an end
// marker.
boolean OnEndOfBytes(j_decompress_ptr info) {
  static constexpr JOCTET kEnd[] = {0xFF, JPEG_EOI};
  info->err->msg_code = JERR_INPUT_EOF;
  LeaveOrGoOn(reinterpret_cast<j_common_ptr>(info));
  info->src->next_input_byte = kEnd;
  info->src->bytes_in_buffer = sizeof(kEnd);
  return TRUE;
}

void OnSkip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<unsigned long>(count) > info->src->bytes_in_buffer) {
    OnEndOfBytes(info);
    return;
  }
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= count;
}

SampleReason ReasonOf(int code, const jpeg_decompress_struct& info) {
  switch (code) {
    case JERR_INPUT_EOF:
    case JWRN_JPEG_EOF:
      return SampleReason::kTruncated;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return SampleReason::kTooLarge;
    case JERR_EMPTY_IMAGE:  // A height of 0 says that it comes after the scan.
      return info.image_height == 0 && info.image_width > 0 ? SampleReason::kUnsupported
                                                            : SampleReason::kCorrupt;
    case JERR_UNKNOWN_MARKER: {  // JPEG-LS and hierarchical pictures begin with one.
      const int marker = info.err->msg_parm.i[0];
      return marker == 0xF7 || marker == 0xDE ? SampleReason::kUnsupported : SampleReason::kCorrupt;
    }
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
      return SampleReason::kUnsupported;
    default:
      return SampleReason::kCorrupt;
  }
}

// Pillow's conversion of the samples as Adobe stores them, which Pillow assumes of every JPEG of
// four components: 255 is no ink. In place, since a pixel shrinks.
void CmykToRgb(uint8_t* pixels, int width) {
  const uint8_t* in = pixels;
  uint8_t* rgb = pixels;
  for (int x = 0; x < width; ++x, in += 4, rgb += 3) {
    const int light = in[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - in[c]) * light + 128;  // Pillow's MULDIV255, rounding.
      const int value = light - (((product >> 8) + product) >> 8);
      rgb[c] = static_cast<uint8_t>(value < 0 ? 0 : value);
    }
  }
}

// Pictures being read, one after the other. libjpeg keeps tables from one picture for the next, and
// then the pixels of a picture without tables would depend on what came before. So each begins with
// the object as it was when new, and with memory taken back as a whole.
class JpegReader {
 public:
  explicit JpegReader(HuffmanBy huffman) : huffman_(huffman) {
    new_info_.err = jpeg_std_error(&trap_.base);
    trap_.base.error_exit = Leave;
    trap_.base.emit_message = OnMessage;
    trap_.base.output_message = OnText;
    source_.init_source = OnNothing;
    source_.fill_input_buffer = OnEndOfBytes;
    source_.skip_input_data = OnSkip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = OnNothing;
    // Without memory for this little the process is at its end.
    BATCHD_CHECK(setjmp(trap_.back) == 0);
    jpeg_create_decompress(&new_info_);
    own_memory_ = new_info_.mem;
    new_info_.mem = memory_.manager();
    new_info_.client_data = &memory_;
    new_info_.src = &source_;
  }
  ~JpegReader() {
    new_info_.mem = own_memory_;
    jpeg_destroy_decompress(&new_info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads up to the first scan and chooses the output: exact, as Pillow's, or fast.
  absl::Status ReadHeader(Bytes bytes, bool is_fast) {
    is_fast_ = is_fast;
    reduction_ = 1;
    return Begin(bytes);
  }

  // What comes out of DecodeRows has 1/reduction of the size.
  void Reduce(int reduction) {
    reduction_ = reduction;
    SetReduction();
  }

  // The size of what DecodeRows gives.
  ImageSize output_size() const { return ReducedSize({height(), width()}, reduction_); }

  // As ReadHeader, unless the last call has read just that.
  absl::Status Continue(Bytes bytes) {
    const bool is_there =
        is_at_scan_ && bytes.data() == bytes_.data() && bytes.size() == bytes_.size();
    if (!is_there) BATCHD_RETURN_IF_ERROR(Begin(bytes));
    is_at_scan_ = false;
    return absl::OkStatus();
  }

  int height() const { return static_cast<int>(info_.image_height); }
  int width() const { return static_cast<int>(info_.image_width); }

  // To be called before DecodeRows, which then goes on as far as there is something.
  void GoOnOverDamage() { trap_.goes_on = source_.bytes_in_buffer > 0; }

  // Decodes what the region needs, as a rule: rows above it are skipped, columns are left out by
  // whole blocks (kMarginColumns more on each side, since smooth chroma looks at its neighbours),
  // and nothing below it is read.
  absl::Status DecodeRows(const Box& region, Scratch* scratch, RowSink* sink) {
    BATCHD_RETURN_IF_ERROR(CheckScans());
    rows_put_ = 0;
    const bool goes_on = trap_.goes_on;
    // Without an end libjpeg, which reads ahead, misses it even where no bit of it is needed.
    absl::Status status =
        DecodeRowsBy(has_end_ ? huffman_ : HuffmanBy::kLibjpeg, region, scratch, sink);
    if (trap_.code != JpegEntropy::kGaveUp) return status;
    // Once more: libjpeg tells what is wrong.
    BATCHD_RETURN_IF_ERROR(Begin(bytes_));
    is_at_scan_ = false;
    if (goes_on) GoOnOverDamage();
    BATCHD_RETURN_IF_ERROR(CheckScans());
    return DecodeRowsBy(HuffmanBy::kLibjpeg, region, scratch, sink);
  }

  // A large picture's coefficients are not to lie beside what is made of its pixels. The next call
  // must be ReadHeader or Continue.
  void ReleaseMemory() { memory_.Reset(); }

 private:
  absl::Status Begin(Bytes bytes) {
    bytes_ = bytes;
    is_at_scan_ = false;
    trap_.goes_on = false;
    trap_.code = 0;
    memory_.Reset();
    info_ = new_info_;
    source_.next_input_byte = bytes.data();
    source_.bytes_in_buffer = bytes.size();
    BATCHD_RETURN_IF_ERROR(Guard([this] { jpeg_read_header(&info_, TRUE); }));
    if (info_.num_components != 1 && info_.num_components != 3 && info_.num_components != 4) {
      return SampleErr(SampleReason::kUnsupported, "{} colour components; 1, 3 or 4 are handled",
                       info_.num_components);
    }
    info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    SetReduction();
    is_at_scan_ = true;
    return absl::OkStatus();
  }

  // For a reduced picture libjpeg makes smaller blocks, of their low frequencies alone. Without
  // smooth upsampling, chroma is repeated in one step with the conversion of colours; of a reduced
  // picture that would be too coarse, and gain little.
  void SetReduction() {
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(reduction_);
    info_.do_fancy_upsampling = is_fast_ && reduction_ == 1 ? FALSE : TRUE;
  }

  // What can be told from the markers: whether the picture ends, and what its scans would cost.
  absl::Status CheckScans() {
    const JpegScans scans = SurveyJpegScans({source_.next_input_byte, source_.bytes_in_buffer});
    has_end_ = scans.ends;
    if (!scans.ends) {
      if (!trap_.goes_on) {
        return SampleErr(SampleReason::kTruncated, "no end marker in {} bytes", bytes_.size());
      }
      source_.bytes_in_buffer = scans.whole_bytes;  // libjpeg would read the end into a table
    }
    // One Huffman scan is fast enough at any size; further ones behind it are not read.
    if (!info_.arith_code && jpeg_has_multiple_scans(&info_) == FALSE) return absl::OkStatus();
    const CodingLimits& limits = info_.arith_code ? kArithmeticLimits : kHuffmanLimits;
    const int64_t size_bytes = bytes_.size();
    if (scans.count > kScansMax || scans.count * height() * width() > limits.pixel_scans ||
        size_bytes > limits.size_bytes) {
      return SampleErr(
          SampleReason::kTooLarge,
          "{} scans of {}x{} pixels in {} bytes; the limits of {} coding are {} scans, "
          "{} pixels over all scans and {} bytes; save it as a baseline JPEG",
          scans.count, width(), height(), size_bytes, limits.coding, kScansMax, limits.pixel_scans,
          limits.size_bytes);
    }
    return absl::OkStatus();
  }

  // Goes on behind the rows that the sink has already.
  absl::Status DecodeRowsBy(HuffmanBy huffman, const Box& region, Scratch* scratch, RowSink* sink) {
    BATCHD_RETURN_IF_ERROR(Guard([this] { jpeg_start_decompress(&info_); }));
    BATCHD_RETURN_IF_ERROR(CheckComponents());
    const bool cuts = !IsSmoothed();
    JDIMENSION left = 0;
    JDIMENSION cut_width = info_.output_width;
    if (cuts) {
      left = static_cast<JDIMENSION>(std::max(region.left - kMarginColumns, 0));
      cut_width = static_cast<JDIMENSION>(
                      std::min(region.left + region.width + kMarginColumns, output_size().width)) -
                  left;
    }
    BATCHD_RETURN_IF_ERROR(Guard([&] {
      if (cut_width < info_.output_width) jpeg_crop_scanline(&info_, &left, &cut_width);
      if (huffman == HuffmanBy::kOwn) {
        entropy_.TakeOver(&info_, static_cast<int>(left), static_cast<int>(cut_width));
      }
      if (cuts && region.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(region.top));
    }));
    const size_t pixel_bytes = info_.output_components;
    const size_t row_bytes = pixel_bytes * cut_width;
    uint8_t* const block = scratch->Get(ScratchArea::kDecoder, row_bytes * kRowsPerPut);
    uint8_t* rows[kRowsPerPut];
    for (int i = 0; i < kRowsPerPut; ++i) rows[i] = block + i * row_bytes;
    uint8_t* const first = block + pixel_bytes * (static_cast<size_t>(region.left) - left);
    BATCHD_RETURN_IF_ERROR(Guard([&] {
      while (static_cast<int>(info_.output_scanline) < region.top) {
        jpeg_read_scanlines(&info_, rows, 1);
      }
      for (int y = 0; y < region.height;) {
        const int count = std::min(kRowsPerPut, region.height - y);
        for (int have = 0; have < count;) {
          have += static_cast<int>(jpeg_read_scanlines(&info_, rows + have, count - have));
        }
        if (pixel_bytes == 4) {
          for (int i = 0; i < count; ++i) CmykToRgb(first + i * row_bytes, region.width);
        }
        if (y == rows_put_) {
          sink->PutRows(first, static_cast<ptrdiff_t>(row_bytes), count);
          rows_put_ += count;
        }
        y += count;
      }
    }));
    return trap_.code == 0 ? absl::OkStatus() : ErrorOf();
  }

  // Runs calls into libjpeg. An error leaves `step` by a jump, so nothing in it may need a
  // destructor while libjpeg runs.
  template <typename Step>
  absl::Status Guard(const Step& step) {
    if (setjmp(trap_.back) == 0) {
      step();
      return absl::OkStatus();
    }
    return ErrorOf();
  }

  // Of what the trap has kept.
  absl::Status ErrorOf() const {
    if (trap_.code == JERR_OUT_OF_MEMORY) {
      return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a JPEG of {}x{} pixels",
                 width(), height());
    }
    return SampleErr(ReasonOf(trap_.code, info_), "{} (near byte {} of {})", trap_.text,
                     bytes_.size() - source_.bytes_in_buffer, bytes_.size());
  }

  // Where a progressive picture's scans leave out some of the first coefficients, libjpeg guesses
  // them from the blocks around, up to two away: a part of the picture would look another way at
  // its edges.
  bool IsSmoothed() const {
    constexpr int kGuessedCoefficients = 10;
    if (info_.coef_bits == nullptr) return false;
    for (int i = 0; i < info_.num_components; ++i) {
      for (int k = 0; k < kGuessedCoefficients; ++k) {
        if (info_.coef_bits[i][k] != 0) return true;
      }
    }
    return false;
  }

  // A component without a scan would come out flat and in silence.
  absl::Status CheckComponents() const {
    if (trap_.goes_on) return absl::OkStatus();
    for (int i = 0; i < info_.num_components; ++i) {
      if (info_.comp_info[i].quant_table == nullptr) {
        return SampleErr(SampleReason::kCorrupt, "no scan has colour component {} of {}", i + 1,
                         info_.num_components);
      }
    }
    return absl::OkStatus();
  }

  const HuffmanBy huffman_;
  ErrorTrap trap_;
  jpeg_source_mgr source_ = {};
  JpegMemory memory_;
  JpegEntropy entropy_;
  jpeg_decompress_struct new_info_ = {};  // as jpeg_create_decompress leaves it
  jpeg_memory_mgr* own_memory_ = nullptr;
  jpeg_decompress_struct info_ = {};
  Bytes bytes_;
  bool is_fast_ = false;
  int reduction_ = 1;
  int rows_put_ = 0;         // of the region, into the sink
  bool has_end_ = false;     // an end marker behind the scan
  bool is_at_scan_ = false;  // the header of bytes_ has been read, and nothing else
};

class JpegDecoder final : public ImageDecoder {
 public:
  explicit JpegDecoder(HuffmanBy huffman) : reader_(huffman) {}

  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    goes_on_over_damage_ = limits.goes_on_over_damage;
    BATCHD_RETURN_IF_ERROR(reader_.ReadHeader(bytes, limits.is_fast));
    return CheckedSize(reader_.height(), reader_.width(), limits);
  }

  bool Reduce(int reduction) override {
    reader_.Reduce(reduction);
    return true;
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    BATCHD_RETURN_IF_ERROR(reader_.Continue(bytes));
    BATCHD_CHECK(LiesInside(region, reader_.output_size()));
    if (goes_on_over_damage_) reader_.GoOnOverDamage();
    const absl::Status decoded = reader_.DecodeRows(region, scratch, sink);
    reader_.ReleaseMemory();
    return decoded;
  }

  int Orientation(Bytes bytes) override { return ExifOrientation(FindJpegExif(bytes)); }

 private:
  JpegReader reader_;
  bool goes_on_over_damage_ = false;
};

#define BATCHD_TEXT_OF(x) #x
#define BATCHD_TEXT(x) BATCHD_TEXT_OF(x)

}  // namespace

std::unique_ptr<ImageDecoder> MakeJpegDecoder(HuffmanBy huffman) {
  return std::make_unique<JpegDecoder>(huffman);
}

extern const DecoderKind kJpegDecoder;
const DecoderKind kJpegDecoder = {
    .name = "jpeg",
    .sentence = "JPEG, sequential and progressive, of 8 bits: grey, YCbCr, RGB, CMYK and YCCK.",
    .matches = Matches,
    .make = [] { return MakeJpegDecoder(HuffmanBy::kOwn); },
    .build = [] { return std::string("libjpeg-turbo " BATCHD_TEXT(LIBJPEG_TURBO_VERSION)); },
    .reduces = true,
};

}  // namespace batchd
