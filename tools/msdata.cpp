// msdata: makes data sets of text, and looks into them. Wiring only; see train/data/README.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/signals.h"
#include "tools/command_line.h"
#include "tools/guard.h"
#include "train/data/preprocess.h"
#include "train/data/statistics.h"

namespace {

using namespace ms;
using core::cat;
using nlohmann::ordered_json;

constexpr const char* kSchema = "msdata/1";
using tools::print;

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

ordered_json to_json(const train::PreprocessedSet& set) {
  return {{"prefix", set.prefix},
          {"key", set.key},
          {"dtype", train::token_type_name(set.token_type)},
          {"documents", set.documents},
          {"tokens", set.tokens},
          {"bytes", set.tokens * train::token_size_bytes(set.token_type)},
          {"unigram_entropy", set.unigram_entropy}};
}

struct PreprocessFlags {
  train::PreprocessOptions options;
  std::vector<std::string> input;  // --input, Megatron's spelling of the positional ones
  std::string format = "auto";
  bool dry_run = false;
  bool json = false;
};

int run_preprocess(PreprocessFlags& flags) {
  train::PreprocessOptions& options = flags.options;
  options.format = train::parse_input_format(flags.format);
  options.inputs.insert(options.inputs.end(), flags.input.begin(), flags.input.end());
  train::PreprocessResult result;
  if (flags.dry_run) {
    result = train::plan_preprocess(options);
    core::log_info("msdata.preprocess", cat("dry run: would read ", result.files.size(), " files, ", result.input_bytes,
                                            " bytes; nothing is written"));
  } else {
    result = train::preprocess(options, [] { return core::termination_signal() != 0; });
    for (const train::PreprocessedSet& set : result.sets) {
      core::log_info("msdata.preprocess", cat(set.documents, " documents | ", set.tokens, " tokens | unigram entropy ",
                                              fixed(set.unigram_entropy, 4), " nats per token | ", set.prefix));
    }
    const double megabytes = static_cast<double>(result.input_bytes) / 1e6;
    core::log_info("msdata.preprocess", cat(fixed(megabytes, 1), " MB in ", fixed(result.seconds, 2), " s, ",
                                            fixed(megabytes / std::max(result.seconds, 1e-9), 1), " MB/s"));
    if (result.malformed_documents > 0) {
      core::log_warning("msdata.preprocess",
                        cat(result.malformed_documents, " documents hold bytes that are not UTF-8; ",
                            options.tokenizer_model.empty() ? "they were kept as they are" : "they became U+FFFD"));
    }
    if (result.empty_documents > 0) {
      core::log_warning("msdata.preprocess", cat(result.empty_documents, " documents are empty"));
    }
  }
  if (flags.json) {
    ordered_json json = {{"schema", kSchema},
                         {"verb", "preprocess"},
                         {"dry_run", flags.dry_run},
                         {"files", result.files.size()},
                         {"input_bytes", result.input_bytes},
                         {"malformed_documents", result.malformed_documents},
                         {"empty_documents", result.empty_documents},
                         {"seconds", result.seconds},
                         {"sets", ordered_json::array()}};
    for (const train::PreprocessedSet& set : result.sets) json["sets"].push_back(to_json(set));
    print(json.dump(2) + "\n");
  } else if (!flags.dry_run) {
    for (const train::PreprocessedSet& set : result.sets) print(set.prefix + "\n");
  } else {
    for (const std::string& file : result.files) print(file + "\n");
  }
  return 0;
}

int run_inspect(const std::vector<std::string>& given, bool json) {
  ordered_json all = {{"schema", kSchema}, {"verb", "inspect"}, {"sets", ordered_json::array()}};
  for (const std::string& prefix : core::expand_path_list(given, std::cin)) {
    const train::IndexedDataset dataset(prefix);
    const train::DatasetStatistics seen = train::measure(dataset);
    const ordered_json set = {{"prefix", prefix},
                              {"dtype", train::token_type_name(dataset.token_type())},
                              {"documents", seen.documents},
                              {"sequences", seen.sequences},
                              {"tokens", seen.tokens},
                              {"bytes", dataset.bin_size_bytes()},
                              {"shortest_sequence", seen.shortest},
                              {"longest_sequence", seen.longest},
                              {"distinct_tokens", seen.distinct_tokens},
                              {"largest_token", seen.largest_token},
                              {"unigram_entropy", seen.unigram_entropy}};
    all["sets"].push_back(set);
    if (json) continue;
    for (const auto& [name, value] : set.items()) {
      std::ostringstream line;
      line << std::left << std::setw(20) << name;
      line << (value.is_string()         ? value.get<std::string>()
               : value.is_number_float() ? fixed(value, 6) + " nats per token"
                                         : value.dump());
      print(line.str() + "\n");
    }
  }
  if (json && !all["sets"].empty()) print(all.dump(2) + "\n");
  return 0;
}

int run_entropy(const std::vector<std::string>& given) {
  for (const std::string& prefix : core::expand_path_list(given, std::cin)) {
    print(fixed(train::measure(train::IndexedDataset(prefix)).unigram_entropy, 6) + "\n");
  }
  return 0;
}

void add_preprocess(CLI::App& app, PreprocessFlags& flags) {
  auto* verb = app.add_subcommand("preprocess", "Text to a data set: PREFIX_<key>_document.bin and .idx");
  train::PreprocessOptions& options = flags.options;
  verb->add_option("INPUT", options.inputs, "Text files (a document each), .jsonl files, folders, or - for stdin");
  verb->add_option("--input", flags.input, "The same");
  verb->add_option("--output-prefix", options.output_prefix, "Beginning of the names of what is written")->required();
  verb->add_option("--json-keys", options.json_keys, "Keys of the JSON objects; a data set each")
      ->capture_default_str();
  verb->add_option("--format", flags.format,
                   "auto (.jsonl, .json and stdin are JSON lines), text, jsonl, or paths: INPUT lists paths")
      ->capture_default_str();
  verb->add_option("--glob", options.globs, "Which files of a folder, at any depth")->capture_default_str();
  verb->add_option("--tokenizer-type", options.tokenizer_type,
                   "ByteLevelTokenizer, or HuggingFaceTokenizer (PretrainedFromHF)")
      ->capture_default_str();
  verb->add_option("--tokenizer-model,--tokenizer-name-or-path", options.tokenizer_model,
                   "tokenizer.json, or the folder that holds it");
  verb->add_flag("--append-eod", options.append_eod, "End each document with the end-of-document token");
  verb->add_option("--workers", options.workers, "Threads that tokenize; 0: one a core")->capture_default_str();
  verb->add_flag("--dry-run", flags.dry_run, "Say what would be read, write nothing");
  verb->add_flag("--json", flags.json, "The result as JSON");
  verb->add_option_function<std::string>(
      "--dataset-impl",
      [](const std::string& impl) {
        if (impl != "mmap") {
          throw core::Error(core::ErrorCode::kUnsupported, cat("--dataset-impl ", impl, ": only mmap is written"));
        }
      },
      "mmap, as Megatron's older releases want to be told");
}

int run(const std::vector<std::string>& args) {
  CLI::App app(
      "msdata: makes Megatron's indexed data sets (.bin/.idx) of text, and looks into them.\n"
      "The prefix of what was made goes to stdout, the log to stderr.");
  app.name("msdata");
  app.require_subcommand(1);
  PreprocessFlags preprocess;
  add_preprocess(app, preprocess);
  std::vector<std::string> prefixes;
  bool json = false;
  auto* inspect = app.add_subcommand("inspect", "Documents, tokens, dtype and unigram entropy of data sets");
  inspect->add_option("PREFIX", prefixes, "Data sets, without .bin; - reads them from stdin")->required();
  inspect->add_flag("--json", json, "The result as JSON");
  auto* entropy = app.add_subcommand("entropy", "Unigram entropy alone, in nats per token, a line a data set");
  entropy->add_option("PREFIX", prefixes, "Data sets, without .bin; - reads them from stdin")->required();
  if (!tools::parse(app, args)) return 0;
  if (app.got_subcommand(inspect)) return run_inspect(prefixes, json);
  if (app.got_subcommand(entropy)) return run_entropy(prefixes);
  return run_preprocess(preprocess);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ms;
  core::install_termination_handlers();
  const std::vector<std::string> args = tools::arguments(argc, argv);
  const std::string verb = cat("msdata", args.empty() || args[0][0] == '-' ? "" : "." + args[0]);
  return tools::run_guarded(verb, [&] { return run(args); });
}
