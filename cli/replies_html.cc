// The text of replies as a page: one file that needs no network. The text is there without a script; the script shows the
// candidates of the token that the mouse or the keyboard points at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "files/formatted.h"
#include "files/text.h"
#include "page.h"
#include "replies.h"
#include "rows.h"

namespace {

constexpr std::string_view kReplyPage = R"html(html { scroll-padding-bottom: 250px; }
body { display: flex; flex-direction: column; min-height: 100vh; }
main { max-width: 1120px; width: 100%; margin: 0 auto; padding: 16px 16px 24px; flex: 1; }
h1 { font-size: 18px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 15.5px; margin: 0 0 8px; display: flex; justify-content: space-between; flex-wrap: wrap; gap: 4px 12px; }
h2 span, p { color: var(--soft); }
h2 span { font-weight: normal; }
p { margin: 0 0 14px; max-width: 75ch; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px; margin: 0 0 14px; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 17px; line-height: 1.9; border-radius: 6px; }
.text b { font-weight: normal; padding: 3px 0; border-radius: 3px; cursor: default;
  background: color-mix(in srgb, var(--hot) calc(var(--s) * 62%), transparent); }
.text b.none { border-bottom: 2px dotted var(--soft); }
.text b.here { outline: 2px solid var(--ink); }
.text i { color: var(--soft); font-style: normal; }
.key { display: flex; align-items: center; gap: 8px; flex-wrap: wrap; color: var(--soft); font-size: 13px; margin: 0 0 14px; }
.key i { width: 160px; height: 14px; border-radius: 3px; border: 1px solid var(--line);
  background: linear-gradient(90deg, transparent, color-mix(in srgb, var(--hot) 62%, transparent)); }
aside { position: sticky; bottom: 0; background: var(--card); border-top: 1px solid var(--line); }
aside > div { max-width: 1120px; margin: 0 auto; padding: 10px 16px 14px; height: 232px; overflow: auto; }
aside h2 { margin: 0 0 6px; }
.row { display: grid; grid-template-columns: minmax(70px, 24%) 1fr 64px 64px; gap: 8px; align-items: center; font-size: 13px;
  min-height: 21px; max-width: 760px; }
.row > :first-child { overflow: hidden; text-overflow: ellipsis; white-space: pre; }
.row > :nth-child(n + 3) { text-align: right; font-variant-numeric: tabular-nums; }
.row.drawn > :first-child { font-weight: 700; }
.row.drawn > :first-child::after { content: " \2190"; }
.track { background: var(--track); border-radius: 4px; height: 12px; overflow: hidden; }
.track i { display: block; background: var(--bar); border-radius: 4px; height: 100%; }
@media print { aside { display: none; } }
</style>
</head>
<body>
<main>
<h1>@TITLE@</h1>
<p>@SAID@</p>
<div class="key"><span>surprise 0</span><i></i><span>@TOP@ nats or more (probability @LEAST@ or less)</span></div>
@REPLIES@</main>
<aside aria-label="Candidates of a token"><div id="panel" tabindex="0"><p>Point at a token, or go to a reply by Tab and through its
tokens by the arrow keys, to see its candidates.</p></div></aside>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("panel");
const texts = [...document.querySelectorAll(".text")];
function make(tag, parts, attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...parts);
  return element;
}
const visible = (text) => text === "" ? "(empty)" : text.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5").replace(/ /g, "\u00b7");
const probability = (logprob) => logprob === null ? "0" : logprob > -9 ? Math.exp(logprob).toFixed(4) : Math.exp(logprob).toExponential(0);
const fixed = (x) => x === null ? "not known" : x.toFixed(3);
let shown = null;
function show(token) {
  if (token === shown) return;
  shown?.classList.remove("here");
  shown?.removeAttribute("aria-selected");
  shown = token;
  token.classList.add("here");
  token.setAttribute("aria-selected", "true");
  token.closest(".text").setAttribute("aria-activedescendant", token.id);
  const {text, reply, position, logprob, rank, entropy, drawn, candidates} = data[Number(token.id.slice(1))];
  const known = [logprob === null ? "logprob not known" : "logprob " + fixed(logprob), rank ? "rank " + rank : "rank not known",
    ...(entropy === null ? [] : ["entropy " + fixed(entropy)])];
  panel.replaceChildren(make("h2", [visible(text), make("span", ["reply " + reply + ", position " + position + ": " + known.join(", ")])]),
    ...candidates.map(([word, logprob], k) => {
      const bar = make("i", []);
      bar.style.width = 100 * (logprob === null ? 0 : Math.exp(logprob)) + "%";
      return make("div", [make("span", [visible(word)], {title: word}), make("div", [bar], {class: "track", "aria-hidden": "true"}),
        make("span", [probability(logprob)]), make("span", [logprob === null ? "-inf" : logprob.toFixed(3)])],
        {class: k === drawn ? "row drawn" : "row"});
    }));
}
for (const text of texts) {
  const tokens = [...text.children];
  text.addEventListener("mouseover", (event) => {
    if (event.target.closest("b")) show(event.target.closest("b"));
  });
  text.addEventListener("click", (event) => {
    if (event.target.closest("b")) show(event.target.closest("b"));
  });
  text.addEventListener("focus", () => {
    if (!tokens.includes(shown)) show(tokens[0]);
  });
  text.addEventListener("keydown", (event) => {
    const at = Math.max(0, tokens.indexOf(shown)), last = tokens.length - 1;
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - 10, ArrowDown: at + 10, Home: 0, End: last}[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(tokens[Math.min(last, Math.max(0, to))]);
    shown.scrollIntoView({block: "nearest"});
  });
}
</script>
</body>
</html>
)html";

// Tokens of this surprise in nats, and of more, have the full colour.
constexpr double kFullSurprise = 6;

std::string json_or_null(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; }

std::string counted(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

// The text of a token in the page: a new line is a mark before it.
std::string shown_text(std::string_view text) {
  std::string shown;
  for (const char c : escaped(text)) {
    shown += c == '\n' ? std::string("<i>\u21b5</i>\n") : c == '\r' ? std::string("<i>\u240d</i>") : std::string(1, c);
  }
  return shown.empty() ? "<i>\u2205</i>" : shown;
}

// The candidates of a token in words, the first few.
std::string title_of(const files::Table::Token& token, const double* logprobs, std::size_t columns) {
  constexpr std::size_t kMost = 5;
  std::string title = std::isnan(token.logprob) ? "logprob not known" : files::formatted("logprob {:.4g}", token.logprob);
  title += token.rank == 0 ? ", rank not known" : fmt::format(", rank {}", token.rank);
  const std::size_t count = std::min(token.candidates.size(), columns);
  for (std::size_t c = 0; c < std::min(count, kMost) && !std::isnan(logprobs[c]); ++c) {
    title += fmt::format("\n{:.4f} {}", std::exp(logprobs[c]), token.candidates[c]);
  }
  if (count > kMost) title += fmt::format("\nand {} more", count - kMost);
  return title;
}

}  // namespace

std::string replies_html(std::string_view file, const files::Table& tokens, const files::Table& measures) {
  const std::vector<double> logprobs = as_doubles(tokens), measured = as_doubles(measures);
  const auto entropy = std::ranges::find(measures.header, "entropy") - measures.header.begin();
  const bool has_entropy = static_cast<std::size_t>(entropy) < measures.header.size();
  std::string replies, data = "[";
  std::size_t count = 0;
  for (std::size_t begin = 0, end; begin < tokens.rows; begin = end, ++count) {
    const std::size_t reply = tokens.tokens[begin].reply;
    double sum = 0;
    std::string text;
    for (end = begin; end < tokens.rows && tokens.tokens[end].reply == reply; ++end) {
      const files::Table::Token& token = tokens.tokens[end];
      const double* const row = logprobs.data() + end * tokens.cols;
      const bool unknown = std::isnan(token.logprob);
      sum += token.logprob;
      text += fmt::format("<b id=\"t{}\" role=\"option\" style=\"--s:{:.3f}\"{} title=\"{}\">{}</b>", end,
                          unknown ? 0 : std::clamp(-token.logprob / kFullSurprise, 0.0, 1.0), unknown ? " class=\"none\"" : "",
                          escaped(title_of(token, row, tokens.cols)), shown_text(tokens.labels[end]));
      std::string candidates;
      std::size_t drawn = token.rank > 0 ? token.rank - 1 : token.candidates.size();
      if (drawn >= token.candidates.size()) {
        drawn = static_cast<std::size_t>(std::ranges::find(token.candidates, tokens.labels[end]) - token.candidates.begin());
      }
      for (std::size_t c = 0; c < token.candidates.size() && !std::isnan(row[c]); ++c) {
        candidates += fmt::format("{}[{},{}]", c == 0 ? "" : ",", inert_json(token.candidates[c]), json_or_null(row[c]));
      }
      data += fmt::format(
          "{}{{\"text\":{},\"reply\":{},\"position\":{},\"logprob\":{},\"rank\":{},\"entropy\":{},\"drawn\":{},\"candidates\":["
          "{}]}}",
          end == 0 ? "" : ",", inert_json(tokens.labels[end]), token.reply, token.position, json_or_null(token.logprob),
          token.rank, has_entropy ? json_or_null(measured[end * measures.cols + static_cast<std::size_t>(entropy)]) : "null",
          drawn, candidates);
    }
    const double mean = sum / static_cast<double>(end - begin);
    replies += fmt::format(
        "<section>\n<h2 id=\"r{0}\">Reply {0}<span>{1}, mean logprob {2}</span></h2>\n<div class=\"text\" role=\"listbox\" "
        "tabindex=\"0\" aria-labelledby=\"r{0}\">{3}</div>\n</section>\n",
        reply, counted(end - begin, "token", "tokens"), std::isnan(mean) ? "not known" : files::formatted("{:.4g}", mean),
        text);
  }
  std::string page = page_head(fmt::format("{} - isentropic describe", file), "'unsafe-inline'");
  page += kReplyPage;
  const auto put = [&](std::string_view place, const std::string& content) {
    for (std::size_t at = page.find(place); at != page.npos; at = page.find(place, at + content.size())) {
      page.replace(at, place.size(), content);
    }
  };
  put("@TOP@", fmt::format("{}", kFullSurprise));
  put("@LEAST@", fmt::format("{:.1g}", std::exp(-kFullSurprise)));
  put("@SAID@",
      fmt::format(
          "{}, {}. The colour of a token is its surprise: minus the log-probability that the model gave it. Dots are under "
          "a token whose log-probability is not known.",
          counted(count, "reply", "replies"), counted(tokens.rows, "token", "tokens")));
  put("@TITLE@", escaped(file));
  const std::size_t at_data = page.find("@DATA@");
  page.replace(at_data, std::string_view("@DATA@").size(), data + "]");
  const std::size_t at_replies = page.find("@REPLIES@");  // before the data; both hold any text
  page.replace(at_replies, std::string_view("@REPLIES@").size(), replies);
  return page;
}
