// gzip, by zlib: bytes unpacked as they are read, and packed as they are written.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct z_stream_s;

namespace files {

// Whether the name of a file says that it is packed.
bool is_gzip(std::string_view path);

class GzipReader {
 public:
  // `source` reads the next packed bytes, as many as asked for unless the input ends; `name` is that of the file in messages.
  using Source = std::function<std::size_t(char* to, std::size_t count)>;
  GzipReader(Source source, std::string name);

  // The next bytes, as many as asked for unless the input ends. Throws BadInput where they are damaged.
  std::size_t read(char* to, std::size_t count);

 private:
  Source source_;
  std::string name_;
  std::vector<char> packed_;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> state_;
  bool begun_ = false, in_member_ = false;
};

class GzipWriter {
 public:
  using Sink = std::function<void(std::string_view packed)>;
  explicit GzipWriter(Sink sink);
  void write(std::string_view bytes);
  void finish();

 private:
  void run(std::string_view bytes, int flush);

  Sink sink_;
  std::vector<char> packed_;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> state_;
};

}  // namespace files
