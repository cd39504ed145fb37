// A web server for one page. Other sites in the same browser must not read the page: they may neither frame nor fetch it, and a
// request must name this address as Host, so that no foreign name that points to this machine works.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "files/file.h"
#include "files/system.h"
#include "page.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Request {
  std::string method, target;
  std::vector<std::string> hosts;
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// The lines up to the empty one, or nothing if they are late, too long or not HTTP/1.
std::optional<Request> received(files::sys::Connection connection) {
  constexpr std::size_t kMost = 16384;
  const Clock::time_point last = Clock::now() + std::chrono::seconds(10);
  std::string text;
  while (text.find("\r\n\r\n") == text.npos) {
    char part[4096];
    const std::ptrdiff_t size = files::sys::receive(connection, part, sizeof part);
    if (size <= 0 || text.size() > kMost || Clock::now() > last) return std::nullopt;
    text.append(part, static_cast<std::size_t>(size));
  }
  Request request;
  std::size_t at = text.find("\r\n");
  const std::string first = text.substr(0, at);
  const std::size_t space = first.find(' '), second = first.rfind(' ');
  if (space == first.npos || space == second || !first.substr(second + 1).starts_with("HTTP/1.")) return std::nullopt;
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, second - space - 1);
  for (at += 2; text.compare(at, 2, "\r\n") != 0;) {
    const std::size_t end = text.find("\r\n", at), colon = std::min(text.find(':', at), end);
    if (lower(text.substr(at, colon - at)) == "host" && colon < end) {
      request.hosts.push_back(lower(trimmed(std::string_view(text).substr(colon + 1, end - colon - 1))));
    }
    at = end + 2;
  }
  return request;
}

bool asks_this_address(const Request& request, std::uint16_t port) {
  if (request.hosts.size() != 1) return false;
  for (const std::string_view name : {"127.0.0.1", "localhost"}) {
    if (request.hosts[0] == fmt::format("{}:{}", name, port) || (port == 80 && request.hosts[0] == name)) return true;
  }
  return false;
}

void answer(files::sys::Connection connection, const std::string& page, std::uint16_t port) {
  const std::optional<Request> request = received(connection);
  std::string_view status = "200 OK", body = page;
  if (!request) {
    status = "400 Bad Request";
  } else if (!asks_this_address(*request, port)) {
    status = "421 Misdirected Request";
  } else if (request->method != "GET" && request->method != "HEAD") {
    status = "405 Method Not Allowed";
  } else if (request->target.substr(0, request->target.find('?')) != "/") {
    status = "404 Not Found";
  }
  const bool refused = !status.starts_with("200");
  if (refused) body = status;
  std::string head = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/{}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nContent-Security-Policy: frame-ancestors 'none'\r\nCross-Origin-Resource-Policy: "
      "same-origin\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n{}\r\n",
      status, refused ? "plain" : "html", body.size(), status.starts_with("405") ? "Allow: GET, HEAD\r\n" : "");
  if (!request || request->method != "HEAD") head += body;
  files::sys::send(connection, head.data(), head.size());
  files::sys::hang_up(connection);
}

}  // namespace

void serve(const std::string& page, std::uint16_t port, const std::function<void(std::uint16_t port)>& ready) {
  constexpr int kMostAtOnce = 32;
  const files::sys::Connection listener = files::sys::listen_here(port);
  if (listener == files::sys::kNoConnection) {
    files::bad_input("explore: --port {} cannot be used: {}", port, std::strerror(errno));
  }
  ready(port);
  // A browser may connect early and send nothing, so each connection has a thread.
  static std::atomic<int> open{0};
  for (;;) {
    while (open >= kMostAtOnce) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const files::sys::Connection connection = files::sys::accept(listener);
    if (connection == files::sys::kNoConnection) {  // it is closed again, or too many files are open
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    try {
      ++open;
      std::thread([connection, &page, port] {
        try {
          answer(connection, page, port);
        } catch (const std::exception&) {  // no memory: the browser may ask again
          files::sys::hang_up(connection);
        }
        --open;
      }).detach();
    } catch (const std::system_error&) {
      --open;
      files::sys::hang_up(connection);
    }
  }
}
