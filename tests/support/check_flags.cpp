// For tests/cli/argparse_agreement.py: applies core::FlagSyntax to the command lines on stdin, one per line, words
// separated by tabs. Prints "ok" for each, or the error up to what was seen: "--save: expected one argument".
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/flag_syntax.h"

int main() {
  ms::core::FlagSyntax syntax;
  syntax.add("--save", 1, 1);
  syntax.add("--weight-decay", 1, 1);
  syntax.add("--bf16", 0, 0);
  syntax.add("--data-path", 1, ms::core::FlagSyntax::kNoLimit);
  syntax.add("--rampup", 3, 3);
  syntax.add("-o", 1, 1);
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words;
    std::istringstream in(line);
    for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
    try {
      syntax.check(words);
      std::cout << "ok\n";
    } catch (const ms::core::Error& error) {
      const std::string text = error.what();
      std::cout << text.substr(0, text.find(", but")) << '\n';
    }
  }
  return 0;
}
