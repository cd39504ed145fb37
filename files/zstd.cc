// Zstandard. A file may hold several packed files one after the other, as cat and pzstd make them.
#include <zstd.h>

#include <new>
#include <utility>
#include <vector>

#include "file.h"
#include "packed.h"

namespace files {
namespace {

class ZstdUnpacker : public Unpacker {
 public:
  ZstdUnpacker(Source source, std::string name)
      : source_(std::move(source)),
        name_(std::move(name)),
        packed_(ZSTD_DStreamInSize()),
        state_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    if (state_ == nullptr) throw std::bad_alloc();
  }

  std::size_t read(char* to, std::size_t count) override {
    ZSTD_outBuffer out = {to, count, 0};
    while (out.pos < count) {
      if (in_.pos == in_.size) in_ = {packed_.data(), source_(packed_.data(), packed_.size()), 0};
      const bool ended = in_.size == 0;
      if (ended && expected_ == 0 && begun_) break;
      const std::size_t before = out.pos;
      const std::size_t result = ZSTD_decompressStream(state_.get(), &out, &in_);
      if (ZSTD_isError(result)) {
        bad_input("{}: this is not zstd, or it is damaged: {}", name_, ZSTD_getErrorName(result));
      }
      begun_ = true;
      expected_ = result;  // 0 at the end of each packed file
      if (ended && out.pos == before) bad_input("{}: the packed file ends too early", name_);
    }
    return out.pos;
  }

 private:
  Source source_;
  std::string name_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> state_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  std::size_t expected_ = 0;
  bool begun_ = false;
};

class ZstdPacker : public Packer {
 public:
  explicit ZstdPacker(Sink sink)
      : sink_(std::move(sink)), packed_(ZSTD_CStreamOutSize()), state_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
    if (state_ == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(state_.get(), ZSTD_c_checksumFlag, 1);
  }

  void write(std::string_view bytes) override { run(bytes, ZSTD_e_continue); }

  void finish() override { run({}, ZSTD_e_end); }

 private:
  void run(std::string_view bytes, ZSTD_EndDirective directive) {
    ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
    std::size_t left = 0;
    do {
      ZSTD_outBuffer out = {packed_.data(), packed_.size(), 0};
      left = ZSTD_compressStream2(state_.get(), &out, &in, directive);
      if (ZSTD_isError(left)) throw std::bad_alloc();  // the only possible error
      sink_({packed_.data(), out.pos});
    } while (in.pos < in.size || (directive == ZSTD_e_end && left > 0));
  }

  Sink sink_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> state_;
};

}  // namespace

std::unique_ptr<Unpacker> zstd_unpacker(Unpacker::Source source, std::string name) {
  return std::make_unique<ZstdUnpacker>(std::move(source), std::move(name));
}

std::unique_ptr<Packer> zstd_packer(Packer::Sink sink) { return std::make_unique<ZstdPacker>(std::move(sink)); }

}  // namespace files
