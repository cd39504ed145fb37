// From a file to a file in bounded memory: reading, calculating and writing at the same time.
#pragma once

#include <functional>
#include <string>

#include "format.h"

namespace files {

// Writes result(rows) for all rows of the reader, some at a time, in their order. Several threads call `result` at once; one
// thread calls `written` after every part. `at_end` gets the number of rows before the file is put in its place. The first
// failure in the order of the rows is thrown, and no file is left.
void stream(const Reader& reader, const Format& format, const std::string& path, const std::function<Table(Table)>& result,
            std::size_t threads, const std::function<void()>& written,
            const std::function<void(std::size_t rows)>& at_end = {});

}  // namespace files
