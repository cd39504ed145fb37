// NumPy's .npz: a zip of .npy files, stored or deflated. minizip finds and unpacks them.

#include <fmt/ranges.h>
#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "array.h"
#include "text.h"

namespace files {
namespace {

constexpr std::string_view kEnding = ".npy";

// minizip's view of an Input. It throws nothing: an exception that passes through C would end the program.
struct Source {
  std::shared_ptr<Input> input;
  std::exception_ptr failure;
};

voidpf open_source(voidpf opaque, const void*, int) { return opaque; }

uLong read_source(voidpf opaque, voidpf, void* to, uLong count) {
  auto* source = static_cast<Source*>(opaque);
  try {
    return source->input->read(static_cast<char*>(to), count);
  } catch (...) {
    source->failure = std::current_exception();
    return 0;
  }
}

uLong write_nothing(voidpf, voidpf, const void*, uLong) { return 0; }

ZPOS64_T tell_source(voidpf opaque, voidpf) { return static_cast<Source*>(opaque)->input->position(); }

long seek_source(voidpf opaque, voidpf, ZPOS64_T offset, int origin) {
  auto* source = static_cast<Source*>(opaque);
  const std::uint64_t size = *source->input->size();
  const std::uint64_t base = origin == SEEK_CUR ? source->input->position() : origin == SEEK_END ? size : 0;
  const std::uint64_t to = base + offset;
  if (to < base || to > size) return -1;
  try {
    source->input->seek(to);
    return 0;
  } catch (...) {
    source->failure = std::current_exception();
    return -1;
  }
}

int nothing(voidpf, voidpf) { return 0; }

class Archive {
 public:
  explicit Archive(std::shared_ptr<Input> input) : source_{std::move(input), nullptr} {
    source_.input->bring_to_memory();
    zlib_filefunc64_def functions{open_source, read_source, write_nothing, tell_source,
                                  seek_source, nothing,     nothing,       &source_};
    file_ = unzOpen2_64("", &functions);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() {
    if (file_ == nullptr) return;
    unzCloseCurrentFile(file_);
    unzClose(file_);
  }

  unzFile file() const { return file_; }
  const std::string& name() const { return source_.input->name(); }

  void check_failure() const {
    if (source_.failure) std::rethrow_exception(source_.failure);
  }

  [[noreturn]] void broken() const {
    check_failure();
    bad_input("{}: the zip archive is broken or cut short", name());
  }

  // The next unpacked bytes of the opened member. At its end the checksum must be right.
  std::size_t read(char* to, std::size_t count) {
    std::size_t size = 0;
    while (size < count) {
      const int got = unzReadCurrentFile(file_, to + size, static_cast<unsigned>(std::min<std::size_t>(count - size, 1 << 30)));
      if (got < 0) broken();
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    if (size < count && !std::exchange(closed_, true) && unzCloseCurrentFile(file_) != UNZ_OK) {
      check_failure();
      bad_input("{}: the zip archive is broken: a checksum is wrong", name());
    }
    return size;
  }

 private:
  Source source_;
  unzFile file_ = nullptr;
  bool closed_ = false;
};

struct Member {
  std::string key;
  std::uint64_t size;
  unz64_file_pos place;
};

// The .npy files of the archive.
std::vector<Member> members_of(const Archive& archive) {
  std::vector<Member> members;
  for (int status = unzGoToFirstFile(archive.file()); status != UNZ_END_OF_LIST_OF_FILE;
       status = unzGoToNextFile(archive.file())) {
    if (status != UNZ_OK) archive.broken();
    unz_file_info64 info;
    std::vector<char> path(1 << 16);
    Member member;
    if (unzGetCurrentFileInfo64(archive.file(), &info, path.data(), path.size(), nullptr, 0, nullptr, 0) != UNZ_OK ||
        unzGetFilePos64(archive.file(), &member.place) != UNZ_OK) {
      archive.broken();
    }
    member.key.assign(path.data(), std::min<std::size_t>(info.size_filename, path.size()));
    if (!member.key.ends_with(kEnding) || member.key.find('\0') != member.key.npos) continue;
    member.key.resize(member.key.size() - kEnding.size());
    if (info.flag & 1) bad_input("{}: the zip archive is encrypted", archive.name());
    if (info.compression_method != 0 && info.compression_method != Z_DEFLATED) {
      bad_input("{}: a file in the zip archive is neither stored nor deflated", archive.name());
    }
    member.size = info.uncompressed_size;
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace

Reader open_npz(std::shared_ptr<Input> input, const ReadOptions& options) {
  const std::string name = input->name();
  refuse_columns(options, name, "an .npz file");
  const auto archive = std::make_shared<Archive>(input);
  if (input->size() == std::uint64_t{0}) bad_input("{}: the file is empty", name);
  if (archive->file() == nullptr) {
    archive->check_failure();
    bad_input("{}: this is not an .npz file, or it is cut short", name);
  }
  std::vector<Member> members = members_of(*archive);
  std::vector<std::string_view> keys;
  for (const Member& member : members) keys.push_back(member.key);
  const Member& member = members[chosen_key(keys, options, name)];
  if (unzGoToFilePos64(archive->file(), &member.place) != UNZ_OK || unzOpenCurrentFile(archive->file()) != UNZ_OK) {
    archive->broken();
  }
  // The size in the archive may be wrong too: it is compared with the number of bytes.
  return npy_reader(
      member.key, name, [archive](char* to, std::size_t count) { return archive->read(to, count); }, std::nullopt);
}

namespace {

// minizip's view of an Output.
struct Target {
  Output* output;
  std::uint64_t at = 0;  // the position that minizip assumes
  std::exception_ptr failure;
};

voidpf open_target(voidpf opaque, const void*, int) { return opaque; }

uLong write_target(voidpf opaque, voidpf, const void* bytes, uLong count) {
  auto* target = static_cast<Target*>(opaque);
  try {
    const std::string_view written(static_cast<const char*>(bytes), count);
    if (target->at == target->output->position()) {
      target->output->write(written);
    } else {
      target->output->change(target->at, written);
    }
    target->at += count;
    return count;
  } catch (...) {
    target->failure = std::current_exception();
    return 0;
  }
}

uLong read_nothing(voidpf, voidpf, void*, uLong) { return 0; }

ZPOS64_T tell_target(voidpf opaque, voidpf) { return static_cast<Target*>(opaque)->at; }

long seek_target(voidpf opaque, voidpf, ZPOS64_T offset, int origin) {
  auto* target = static_cast<Target*>(opaque);
  target->at = offset + (origin == SEEK_CUR ? target->at : origin == SEEK_END ? target->output->position() : 0);
  return 0;
}

// Whether an array's name is safe as a file name in an archive: unpacking it must not write to another folder.
bool is_member_name(std::string_view key) {
  return !key.empty() && key[0] != '/' && key.find("..") == key.npos && key.find_first_of("\\:") == key.npos &&
         printable(key) == key;
}

// Writes one stored member, whose header may change at the end. Its checksum is combined from those of the header and of the
// numbers.
class Archiver {
 public:
  Archiver(Output& output, const Table& first, bool counted)
      : target_{&output, 0, nullptr}, counted_(counted), like_(without_numbers(first)) {
    output.allow_changes();
    zlib_filefunc64_def functions{open_target, read_nothing, write_target, tell_target,
                                  seek_target, nothing,      nothing,      &target_};
    file_ = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions);
    check(file_ == nullptr);
    const std::string member = (is_member_name(first.key) ? first.key : "arr_0") + std::string(kEnding);
    zip_fileinfo info = {};
    info.tmz_date = {0, 0, 0, 1, 0, 1980};
    constexpr int kStored = 0, kRaw = 1, kZip64 = 1;
    check(zipOpenNewFileInZip2_64(file_, member.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, kStored, 0, kRaw, kZip64) !=
          ZIP_OK);
    header_ = npy_header(like_, std::nullopt);
    // minizip buffers what it writes. So it gets the header that is known now, and end() replaces that in the file.
    header_at_ = target_.at;
    write(header_);
  }
  Archiver(const Archiver&) = delete;
  Archiver& operator=(const Archiver&) = delete;
  ~Archiver() {
    if (file_ != nullptr) zipClose(file_, nullptr);
  }

  void append(std::string_view bytes) {
    checksum_ = crc32_z(checksum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    size_ += bytes.size();
    write(bytes);
  }

  void end(std::size_t rows) {
    if (!counted_) header_ = npy_header(like_, rows);
    const uLong of_header = crc32_z(0, reinterpret_cast<const Bytef*>(header_.data()), header_.size());
    const uLong all = crc32_combine(of_header, checksum_, static_cast<z_off_t>(size_));
    check(zipCloseFileInZipRaw64(file_, header_.size() + size_, all) != ZIP_OK);
    check(zipClose(std::exchange(file_, nullptr), nullptr) != ZIP_OK);
    if (!counted_) target_.output->change(header_at_, header_);
  }

 private:
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, 1 << 30);
      check(zipWriteInFileInZip(file_, piece.data(), static_cast<unsigned>(piece.size())) != ZIP_OK);
      bytes.remove_prefix(piece.size());
    }
  }

  void check(bool failed) {
    if (target_.failure) std::rethrow_exception(std::exchange(target_.failure, nullptr));
    if (failed) bad_input("the zip archive cannot be written");
  }

  Target target_;
  bool counted_;
  Table like_;
  zipFile file_ = nullptr;
  std::string header_;
  std::uint64_t header_at_ = 0;
  uLong checksum_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace

Writer create_npz(Output& output, const Table& first, bool counted) {
  const auto archiver = std::make_shared<Archiver>(output, first, counted);
  return {.append = [archiver](std::string_view encoded) { archiver->append(encoded); },
          .end = [archiver](std::size_t rows) { archiver->end(rows); }};
}

}  // namespace files
