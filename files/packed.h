// Packed files: bytes are unpacked as they are read, and packed as they are written. gzip.cc by zlib, zstd.cc by libzstd.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace files {

class Unpacker {
 public:
  // Reads the next packed bytes, as many as asked for unless the input ends.
  using Source = std::function<std::size_t(char* to, std::size_t count)>;

  virtual ~Unpacker() = default;

  // The next bytes, as many as asked for unless the input ends. Throws BadInput if they are damaged.
  virtual std::size_t read(char* to, std::size_t count) = 0;
};

class Packer {
 public:
  using Sink = std::function<void(std::string_view packed)>;

  virtual ~Packer() = default;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;
};

// `name` is the file's name in messages.
std::unique_ptr<Unpacker> gzip_unpacker(Unpacker::Source source, std::string name);
std::unique_ptr<Unpacker> zstd_unpacker(Unpacker::Source source, std::string name);
std::unique_ptr<Packer> gzip_packer(Packer::Sink sink);
std::unique_ptr<Packer> zstd_packer(Packer::Sink sink);

struct Packing {
  std::string_view name, ending, magic, tool;  // `magic`: the first bytes of such a file
  std::unique_ptr<Unpacker> (*unpacker)(Unpacker::Source source, std::string name);
  std::unique_ptr<Packer> (*packer)(Packer::Sink sink);
};

inline constexpr Packing kPackings[] = {{"gzip", ".gz", "\x1F\x8B", "gzip", gzip_unpacker, gzip_packer},
                                        {"zstd", ".zst", "\x28\xB5\x2F\xFD", "zstd", zstd_unpacker, zstd_packer}};

// The packing that the ending of a file's name says, or nullptr.
const Packing* packing_of(std::string_view path);

}  // namespace files
