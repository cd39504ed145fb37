// `isentropic describe` of replies of language models: what is known of each token beside its measures, one row for each reply,
// and the text as a page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "files/table.h"

// Keeps the columns reply, position, logprob and rank beside the measures; `digits` of Table::digits.
void keep_tokens(files::Table& table, int digits);

// One row for each reply: the number of its tokens, the mean and the lowest of their logprobs, the mean of each measure.
// `table` has the measures of the tokens.
files::Table by_reply(files::Table table);

// The page of the text of replies, each token coloured by its surprise, with its candidates. `tokens` has their
// log-probabilities, `measures` the measures of the same rows.
std::string replies_html(std::string_view file, const files::Table& tokens, const files::Table& measures);
