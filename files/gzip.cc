// Gzip. A file may hold several packed files one after the other, as cat makes them.
#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "file.h"
#include "packed.h"

namespace files {
namespace {

constexpr std::size_t kPacked = std::size_t{1} << 16;
constexpr int kWindow = MAX_WBITS + 16;  // 16: gzip's header and checksum

using State = std::unique_ptr<z_stream, void (*)(z_stream*)>;

class GzipUnpacker : public Unpacker {
 public:
  GzipUnpacker(Source source, std::string name)
      : source_(std::move(source)), name_(std::move(name)), packed_(kPacked), state_(new z_stream(), [](z_stream* state) {
          inflateEnd(state);
          delete state;
        }) {
    if (inflateInit2(state_.get(), kWindow) != Z_OK) throw std::bad_alloc();
  }

  std::size_t read(char* to, std::size_t count) override {
    std::size_t size = 0;
    while (size < count) {
      if (state_->avail_in == 0) {
        state_->next_in = reinterpret_cast<Bytef*>(packed_.data());
        state_->avail_in = static_cast<uInt>(source_(packed_.data(), packed_.size()));
      }
      if (state_->avail_in == 0) {
        if (in_member_ || !begun_) bad_input("{}: the packed file ends too early", name_);
        break;
      }
      if (!in_member_ && begun_) {
        // Tapes and archives have zeros after the end.
        while (state_->avail_in > 0 && *state_->next_in == 0) ++state_->next_in, --state_->avail_in;
        if (state_->avail_in == 0) continue;
        inflateReset(state_.get());
      }
      begun_ = in_member_ = true;
      const std::size_t room = std::min<std::size_t>(count - size, 1 << 30);
      state_->next_out = reinterpret_cast<Bytef*>(to + size);
      state_->avail_out = static_cast<uInt>(room);
      const int result = inflate(state_.get(), Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        bad_input("{}: this is not gzip, or it is damaged: {}", name_, state_->msg != nullptr ? state_->msg : "no header");
      }
      in_member_ = result != Z_STREAM_END;
      size += room - state_->avail_out;
    }
    return size;
  }

 private:
  Source source_;
  std::string name_;
  std::vector<char> packed_;
  State state_;
  bool begun_ = false, in_member_ = false;
};

class GzipPacker : public Packer {
 public:
  explicit GzipPacker(Sink sink)
      : sink_(std::move(sink)), packed_(kPacked), state_(new z_stream(), [](z_stream* state) {
          deflateEnd(state);
          delete state;
        }) {
    // The header has no name and no time, so that the same numbers give the same file.
    if (deflateInit2(state_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }

  void write(std::string_view bytes) override { run(bytes, Z_NO_FLUSH); }

  void finish() override { run({}, Z_FINISH); }

 private:
  void run(std::string_view bytes, int flush) {
    do {
      const std::size_t now = std::min<std::size_t>(bytes.size(), 1 << 30);
      state_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      state_->avail_in = static_cast<uInt>(now);
      bytes.remove_prefix(now);
      do {
        state_->next_out = reinterpret_cast<Bytef*>(packed_.data());
        state_->avail_out = static_cast<uInt>(packed_.size());
        deflate(state_.get(), bytes.empty() ? flush : Z_NO_FLUSH);
        sink_({packed_.data(), packed_.size() - state_->avail_out});
      } while (state_->avail_out == 0);
    } while (!bytes.empty());
  }

  Sink sink_;
  std::vector<char> packed_;
  State state_;
};

}  // namespace

std::unique_ptr<Unpacker> gzip_unpacker(Unpacker::Source source, std::string name) {
  return std::make_unique<GzipUnpacker>(std::move(source), std::move(name));
}

std::unique_ptr<Packer> gzip_packer(Packer::Sink sink) { return std::make_unique<GzipPacker>(std::move(sink)); }

}  // namespace files
