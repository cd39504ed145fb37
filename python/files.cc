// Files and Arrow arrays for Python: numbers are passed as bytes without a copy, and isentropic/_numpy/_files.py gives them
// type and shape.

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrow.h"
#include "bindings.h"
#include "files/columns.h"
#include "files/format.h"

namespace isentropic {
namespace {

namespace nb = nanobind;
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

constexpr const char* kTypes[] = {"float32", "float64", "float16", "bfloat16"};  // in the order of Table::values

// Bytes whose owner lives as long as Python needs them.
template <class Owner>
Bytes bytes_of(const void* data, std::size_t size, std::shared_ptr<Owner> owner) {
  auto* kept = new std::shared_ptr<Owner>(std::move(owner));
  const nb::capsule capsule(kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<Owner>*>(p); });
  return Bytes(const_cast<void*>(data), {size}, capsule);
}

// (bytes, type, shape, names of the columns, labels or None).
nb::tuple read_file(const std::string& path, const std::string& format, const files::ReadOptions& options) {
  const auto table = std::make_shared<files::Table>();
  {
    const nb::gil_scoped_release release;
    const files::Format& from = files::input_format(path, format);
    *table = files::read_all(files::open(from, std::make_shared<files::Input>(path), options));
  }
  const auto [data, size] = std::visit(
      [](const auto& values) { return std::pair<const void*, std::size_t>(values.data(), values.size() * sizeof(values[0])); },
      table->values);
  nb::object names = nb::cast(table->header);
  nb::object row_labels = table->label_column ? nb::cast(table->labels) : nb::none();
  return nb::make_tuple(bytes_of(data, size, table), kTypes[table->values.index()], nb::tuple(nb::cast(table->shape)), names,
                        row_labels);
}

void write_file(const std::string& path, const std::string& format, nb::ndarray<const std::uint8_t, nb::c_contig> bytes,
                const std::string& type, std::vector<std::size_t> shape, std::size_t rows, std::size_t cols,
                std::vector<std::string> header, std::optional<std::vector<std::string>> labels, std::string key) {
  const nb::gil_scoped_release release;
  const files::Format& to = files::output_format(format.empty() ? path : "." + format);
  files::Table table;
  if (type == kTypes[1]) table.values = std::vector<double>();
  if (type == kTypes[2]) table.values = std::vector<float16>();
  if (type == kTypes[3]) table.values = std::vector<bfloat16>();
  std::visit(
      [&](auto& values) {
        values.resize(rows * cols);
        if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(values[0]));
      },
      table.values);
  table.rows = rows;
  table.cols = cols;
  table.shape = std::move(shape);
  table.header = std::move(header);
  table.key = std::move(key);
  table.quoted_words = true;
  table.pointed = true;
  if (labels) {
    table.labels = std::move(*labels);
    table.label_column = 0;
    table.label_header = "label";
  }
  files::Output output(path);
  files::write_all(to, output, table);
  output.finish();
}

// (the places of columns that may not be scores, why) in a table of these columns; `whole` says which have a type of whole
// numbers, and `rows` has the first rows.
nb::tuple doubtful_columns(const std::vector<std::string>& names, const std::vector<bool>& whole,
                           const std::vector<std::vector<double>>& rows) {
  using files::Written;
  files::WholeColumns columns;
  std::vector<Written> first(names.size(), Written::other);
  for (const std::vector<double>& row : rows) {
    std::vector<Written> written;
    for (std::size_t c = 0; c < names.size(); ++c) {
      written.push_back(whole.at(c) ? files::written_as(row.at(c) == 0 ? "0" : "1", row.at(c))
                                    : files::written_as(".", row.at(c)));
    }
    if (&row == &rows.front()) first = written;
    if (!columns.done()) columns.add(written, row);
  }
  files::Doubt doubt = files::doubt_by_names(names, first, false);
  if (doubt.columns.empty()) doubt = columns.doubt(true);
  return nb::make_tuple(doubt.columns, doubt.reason);
}

// A structure from a producer, which is released at the end.
template <class T>
struct Owned {
  T value{};
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value.release != nullptr) value.release(&value);
  }
};

template <class T>
std::shared_ptr<Owned<T>> taken_from(nb::handle capsule, const char* name) {
  auto* source = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (source == nullptr) throw nb::python_error();
  auto owned = std::make_shared<Owned<T>>();
  owned->value = *source;
  source->release = nullptr;
  return owned;
}

[[noreturn]] void refuse(const std::string& what) { throw nb::value_error(("an Arrow array " + what).c_str()); }

// Whether one of the `length` entries from `offset` on is null: an array of lists or columns may use a part of its child.
bool has_nulls(const arrow::Array& array, std::int64_t offset, std::int64_t length) {
  if (array.null_count == 0 || array.buffer_count == 0 || array.buffers[0] == nullptr) return false;
  const auto* valid = static_cast<const std::uint8_t*>(array.buffers[0]);
  for (std::int64_t i = array.offset + offset; i < array.offset + offset + length; ++i) {
    if ((valid[i / 8] >> (i % 8) & 1) == 0) return true;
  }
  return false;
}

// [(name, bytes, type, shape)] of an array of numbers or of lists of one length, or of each of several columns.
void append_arrow(nb::list& result, const arrow::Schema& schema, const arrow::Array& array, std::int64_t offset,
                  std::int64_t length, const std::shared_ptr<Owned<arrow::Array>>& owner, std::vector<std::size_t> shape) {
  if (schema.dictionary != nullptr)
    refuse("that is dictionary-encoded has no numbers; decode it first (dictionary_decode of pyarrow)");
  if (has_nulls(array, offset, length)) refuse("with nulls has no numbers there; fill them first");
  const std::string_view format = schema.format;
  shape.push_back(static_cast<std::size_t>(length));
  if (format.starts_with("+w:")) {
    const std::int64_t width = std::stoll(std::string(format.substr(3)));
    const std::int64_t begin = (array.offset + offset) * width;
    const arrow::Array& child = *array.children[0];
    // The number of rows and their length follow from the child's length.
    std::vector<std::size_t> outer = shape;
    nb::list inner;
    append_arrow(inner, *schema.children[0], child, begin, length * width, owner, {});
    if (nb::len(inner) != 1) refuse("of lists of several columns has no order of numbers; take its columns apart");
    nb::tuple found = nb::cast<nb::tuple>(inner[0]);
    std::vector<std::size_t> all = outer;
    all.push_back(static_cast<std::size_t>(width));
    const auto deeper = nb::cast<std::vector<std::size_t>>(nb::list(found[3]));
    all.insert(all.end(), deeper.begin() + 1, deeper.end());
    result.append(nb::make_tuple(schema.name == nullptr ? "" : schema.name, found[1], found[2], nb::tuple(nb::cast(all))));
    return;
  }
  if (format == "+s") {
    for (std::int64_t c = 0; c < schema.child_count; ++c) {
      append_arrow(result, *schema.children[c], *array.children[c], array.offset + offset, length, owner, {});
    }
    if (schema.child_count != 1) return;
    // A column of numbers is rows of one number, as several columns side by side are rows of several.
    const nb::tuple only = nb::cast<nb::tuple>(result[nb::len(result) - 1]);
    if (nb::len(nb::object(only[3])) == 1) {
      result[nb::len(result) - 1] = nb::make_tuple(only[0], only[1], only[2], nb::make_tuple(length, 1));
    }
    return;
  }
  static constexpr std::pair<std::string_view, std::pair<const char*, int>> kNumbers[] = {
      {"f", {"float32", 4}}, {"g", {"float64", 8}}, {"e", {"float16", 2}}, {"c", {"int8", 1}},
      {"C", {"uint8", 1}},   {"s", {"int16", 2}},   {"S", {"uint16", 2}},  {"i", {"int32", 4}},
      {"I", {"uint32", 4}},  {"l", {"int64", 8}},   {"L", {"uint64", 8}}};
  for (const auto& [known, type] : kNumbers) {
    if (format != known) continue;
    const auto* data = static_cast<const char*>(array.buffers[1]) + (array.offset + offset) * type.second;
    result.append(nb::make_tuple(schema.name == nullptr ? "" : schema.name,
                                 bytes_of(data, static_cast<std::size_t>(length * type.second), owner), type.first,
                                 nb::tuple(nb::cast(shape))));
    return;
  }
  refuse("must be of numbers, of lists of one length or of columns of numbers, got the format '" + std::string(format) + "'");
}

nb::list from_arrow(nb::handle schema_capsule, nb::handle array_capsule) {
  const auto schema = taken_from<arrow::Schema>(schema_capsule, "arrow_schema");
  const auto array = taken_from<arrow::Array>(array_capsule, "arrow_array");
  nb::list result;
  append_arrow(result, schema->value, array->value, 0, array->value.length, array, {});
  return result;
}

// The list for each part of a stream.
nb::list from_arrow_stream(nb::handle capsule) {
  const auto stream = taken_from<arrow::Stream>(capsule, "arrow_array_stream");
  const auto check = [&](int status) {
    if (status == 0) return;
    const char* why = stream->value.last_error(&stream->value);
    refuse(std::string("stream failed: ") + (why == nullptr ? std::strerror(status) : why));
  };
  Owned<arrow::Schema> schema;
  check(stream->value.schema(&stream->value, &schema.value));
  nb::list parts;
  while (true) {
    auto array = std::make_shared<Owned<arrow::Array>>();
    check(stream->value.next(&stream->value, &array->value));
    if (array->value.release == nullptr) return parts;
    nb::list part;
    append_arrow(part, schema.value, array->value, 0, array->value.length, array, {});
    parts.append(part);
  }
}

}  // namespace

void bind_files(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& failure, void*) {
    try {
      std::rethrow_exception(failure);
    } catch (const files::SystemFailure& error) {
      // OSError chooses FileNotFoundError and similar classes by the number.
      const nb::object arguments = nb::make_tuple(error.number, std::strerror(error.number), error.file);
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    } catch (const files::BadInput& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  m.def(
      "read_file",
      [](const std::string& path, const std::string& format, const std::string& key, const std::string& labels,
         std::optional<bool> header, const std::string& columns, const std::string& exclude, char delimiter, int missing,
         std::vector<std::string> na, char thousands) {
        files::ReadOptions options = {.key = key, .label = labels, .header = header, .columns = columns, .exclude = exclude};
        options.delimiter = delimiter;
        options.missing = static_cast<files::Missing>(missing);
        options.na = std::move(na);
        options.thousands = thousands;
        return read_file(path, format, options);
      },
      nb::arg("path"), nb::arg("format"), nb::arg("key"), nb::arg("labels"), nb::arg("header").none(), nb::arg("columns"),
      nb::arg("exclude"), nb::arg("delimiter"), nb::arg("missing"), nb::arg("na"), nb::arg("thousands"));
  m.def("write_file", &write_file, nb::arg("path"), nb::arg("format"), nb::arg("bytes"), nb::arg("type"), nb::arg("shape"),
        nb::arg("rows"), nb::arg("cols"), nb::arg("header"), nb::arg("labels").none(), nb::arg("key"));
  m.def("doubtful_columns", &doubtful_columns, nb::arg("names"), nb::arg("whole"), nb::arg("rows"));
  m.attr("rows_looked_at") = files::WholeColumns::kRows;
  m.def("from_arrow", &from_arrow, nb::arg("schema"), nb::arg("array"));
  m.def("from_arrow_stream", &from_arrow_stream, nb::arg("stream"));
  m.attr("file_formats") = nb::tuple(nb::cast(files::format_names()));
}

}  // namespace isentropic
