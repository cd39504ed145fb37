// isentropic explore: the explorer with the rows of a file. It is a page that calculates with the library itself.
#include <memory>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "files/file.h"
#include "files/system.h"
#include "page.h"
#include "rows.h"

namespace {

struct Serving {
  std::size_t port = 0;
  bool no_browser = false;
};

void explore(const Serving& serving, const Files& files) {
  if (serving.port > 65535) bad_input("explore: --port must be at most 65535, got {}", serving.port);
  Table table;
  if (!files.in.empty()) {
    table = read_table(files);
    if (table.rows == 0 || table.cols == 0) bad_input("{}: there are no scores to explore", files::input_name(files.in));
  }
  std::optional<std::string> page = explorer_page();
  if (!page) {
    throw std::runtime_error(
        "explore: this program was installed without its page, share/isentropic/explorer.html. In the sources, `scripts/wasm "
        "&& "
        "pip install .` makes the page and installs both; ISENTROPIC_EXPLORER=FILE names a page that is elsewhere");
  }
  if (!files.in.empty()) {
    std::size_t kept = 0;
    page = page_with_rows(std::move(*page), table, kept);
    if (kept < table.rows && !files.quiet) {
      fmt::print(stderr, "isentropic: the page has the first {} of {} rows; --rows A:B chooses others\n", kept, table.rows);
    }
  }
  if (!files.out.empty()) return files::write_output(files.out, *page);
  serve(*page, static_cast<std::uint16_t>(serving.port), [&](std::uint16_t port) {
    const std::string address = fmt::format("http://127.0.0.1:{}/", port);
    files::write_output("", address + "\n");
    if (!files.quiet) fmt::print(stderr, "isentropic: Ctrl-C stops the server\n");
    if (!serving.no_browser && files::sys::is_terminal(files::sys::standard_output)) files::sys::open_in_browser(address);
  });
}

}  // namespace

void add_explore(CLI::App& app, Program& program) {
  const auto serving = std::make_shared<Serving>();
  CLI::App& command =
      *app.add_subcommand("explore", "Rows of scores under all maps in a browser, with sliders for their parameters.");
  add_input_options(command, program.files);
  command.get_option("FILE")->description(
      fmt::format("Scores: {}, also with .gz or .zst; - is standard input, as CSV; without it the page has examples",
                  files::format_endings()));
  CLI::Option* const port =
      add_number(command, "--port", serving->port, "Serve the page at this port of 127.0.0.1 (default 0: any free port)");
  add_flag(command, "--no-browser", serving->no_browser, "Only print the address; -o never opens a browser");
  add_output_option(command, program.files, "Write the page to this file, which needs no server, instead of serving it")
      ->excludes(port);
  command.footer(
      "Only this machine can read the page, and the page loads nothing from elsewhere.\n"
      "Its address is printed and, if standard output is a terminal, opened in a browser.\n"
      "Ctrl-C stops the server.\n"
      "Example: isentropic explore scores.csv\n"
      "         isentropic explore scores.csv -o page.html\n" +
      std::string(kEverywhere));
  command.callback([serving, &program] { program.action = [serving, &files = program.files] { explore(*serving, files); }; });
}
