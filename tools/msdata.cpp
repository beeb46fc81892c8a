// msdata: makes data sets from text, and inspects them. Connects modules only; train/data/README.md is its page.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "core/error.h"
#include "core/io/json.h"
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
  std::vector<std::string> input;  // --input, Megatron's spelling of the positional arguments
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
                            options.tokenizer.tokenizer_type == "ByteLevelTokenizer" ? "they were kept as they are"
                                                                                     : "they became U+FFFD"));
    }
    if (result.skipped_lines > 0) {
      core::log_warning("msdata.preprocess", cat(result.skipped_lines, " lines were left out (--skip-bad-lines), the ",
                                                 "first: ", result.first_skipped_line));
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
                         {"skipped_lines", result.skipped_lines},
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

struct InspectFlags {
  std::vector<std::string> prefixes;
  train::TokenizerChoice tokenizer;
  bool with_tokenizer = false;  // a tokenizer was given
  int64_t show_documents = 1;
  int64_t show_tokens = 64;
  bool json = false;
};

ordered_json to_json(const train::LengthStatistics& lengths) {
  ordered_json percentiles, histogram = ordered_json::array();
  for (size_t i = 0; i < lengths.percentiles.size(); ++i) {
    percentiles[cat("p", train::kLengthPercentiles[i])] = lengths.percentiles[i];
  }
  for (size_t bin = 0; bin < lengths.histogram.size(); ++bin) {
    const int64_t from = bin == 0 ? 0 : int64_t{1} << (bin - 1);
    histogram.push_back(
        {{"from", from}, {"to", std::max<int64_t>(2 * from - 1, 0)}, {"sequences", lengths.histogram[bin]}});
  }
  return {{"mean", lengths.mean}, {"percentiles", percentiles}, {"histogram", histogram}};
}

// The beginning of a document as text; a character that is cut in half is printed as U+FFFD.
std::string beginning(const train::IndexedDataset& dataset, int64_t document, int64_t most_tokens,
                      const train::Tokenizer& tokenizer) {
  std::vector<int32_t> all;
  for (int64_t s = dataset.document_index(document); s < dataset.document_index(document + 1); ++s) {
    std::vector<int32_t> tokens(
        static_cast<size_t>(std::min(dataset.sequence_length(s), most_tokens - static_cast<int64_t>(all.size()))));
    dataset.read(s, 0, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return tokenizer.decode(all);
}

ordered_json inspect(const std::string& prefix, const InspectFlags& flags, const train::Tokenizer* tokenizer) {
  const train::IndexedDataset dataset(prefix);
  const auto eod = tokenizer == nullptr ? std::nullopt : tokenizer->eod();
  const train::DatasetStatistics seen = train::measure(dataset, eod);
  ordered_json set = {{"prefix", prefix},
                      {"dtype", train::token_type_name(dataset.token_type())},
                      {"documents", seen.documents},
                      {"sequences", seen.sequences},
                      {"tokens", seen.tokens},
                      {"bytes", dataset.bin_size_bytes()},
                      {"shortest_sequence", seen.lengths.shortest},
                      {"longest_sequence", seen.lengths.longest},
                      {"sequence_lengths", to_json(seen.lengths)},
                      {"distinct_tokens", seen.distinct_tokens},
                      {"largest_token", seen.largest_token},
                      {"unigram_entropy", seen.unigram_entropy}};
  if (tokenizer == nullptr) return set;
  if (seen.largest_token >= tokenizer->vocab_size()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat(prefix, " holds the id ", seen.largest_token, ", but the tokenizer has ",
                          tokenizer->vocab_size(), " ids. Was the data set made with another one?"));
  }
  set["eod"] = eod ? ordered_json(*eod) : ordered_json();
  set["eod_tokens"] = seen.eod_tokens;
  set["documents_ended_by_eod"] = seen.documents_ended;
  set["text"] = ordered_json::array();
  for (int64_t d = 0; d < std::min(seen.documents, flags.show_documents); ++d) {
    set["text"].push_back(beginning(dataset, d, flags.show_tokens, *tokenizer));
  }
  return set;
}

void print_line(const std::string& name, const std::string& value) {
  std::ostringstream line;
  line << std::left << std::setw(24) << name << value << "\n";
  print(line.str());
}

// Prints text that is not valid UTF-8 too.
std::string dump(const ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

void print_set(const ordered_json& set) {
  for (const auto& [name, value] : set.items()) {
    if (name == "sequence_lengths") {
      print_line("mean_sequence", fixed(value["mean"], 1));
      std::string percentiles;
      for (const auto& [p, length] : value["percentiles"].items()) percentiles += cat(p, " ", length.dump(), "  ");
      print_line("sequence_percentiles", percentiles.substr(0, percentiles.size() - 2));
      for (const auto& bin : value["histogram"]) {
        print_line(cat("  ", bin["from"].dump(), " to ", bin["to"].dump()), cat(bin["sequences"].dump(), " sequences"));
      }
    } else if (name == "text") {
      for (const auto& text : value) print_line(name, dump(text));
    } else if (name == "unigram_entropy") {
      print_line(name, fixed(value, 6) + " nats per token");
    } else {
      print_line(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

int run_inspect(const InspectFlags& flags) {
  const auto tokenizer = flags.with_tokenizer ? train::make_tokenizer(flags.tokenizer) : nullptr;
  ordered_json all = {{"schema", kSchema}, {"verb", "inspect"}, {"sets", ordered_json::array()}};
  for (const std::string& prefix : core::expand_path_list(flags.prefixes, std::cin)) {
    all["sets"].push_back(inspect(prefix, flags, tokenizer.get()));
    if (!flags.json) print_set(all["sets"].back());
  }
  if (flags.json && !all["sets"].empty()) print(dump(all, 2) + "\n");
  return 0;
}

int run_entropy(const std::vector<std::string>& given) {
  for (const std::string& prefix : core::expand_path_list(given, std::cin)) {
    print(fixed(train::measure(train::IndexedDataset(prefix)).unigram_entropy, 6) + "\n");
  }
  return 0;
}

void add_tokenizer(CLI::App& verb, train::TokenizerChoice& tokenizer) {
  verb.add_option("--tokenizer-type", tokenizer.tokenizer_type,
                  "ByteLevelTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
                  "Llama2Tokenizer, HuggingFaceTokenizer (PretrainedFromHF), or NullTokenizer")
      ->capture_default_str();
  verb.add_option("--tokenizer-model,--tokenizer-name-or-path", tokenizer.tokenizer_model,
                  "tokenizer.json or a SentencePiece .model, or the folder that holds it");
  verb.add_option("--vocab-file", tokenizer.vocab_file, "vocab.json of GPT2BPETokenizer");
  verb.add_option("--merge-file", tokenizer.merge_file, "merges.txt of GPT2BPETokenizer");
  verb.add_option("--vocab-size", tokenizer.vocab_size, "Ids of NullTokenizer, whose texts are ids already");
  verb.add_option("--vocab-extra-ids", tokenizer.vocab_extra_ids, "<extra_id_N> that SentencePieceTokenizer adds");
}

CLI::App* add_inspect(CLI::App& app, InspectFlags& flags) {
  auto* verb =
      app.add_subcommand("inspect", "What data sets hold: counts, lengths, entropy, and with a tokenizer text");
  verb->add_option("PREFIX", flags.prefixes, "Data sets, without .bin; - reads them from stdin")->required();
  add_tokenizer(*verb, flags.tokenizer);
  verb->add_option("--show", flags.show_documents, "With a tokenizer: documents whose beginning is shown as text")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--show-tokens", flags.show_tokens, "Tokens of each that are shown at most")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", flags.json, "The result as JSON");
  return verb;
}

void add_preprocess(CLI::App& app, PreprocessFlags& flags) {
  auto* verb = app.add_subcommand("preprocess", "Text to a data set: PREFIX_<key>_document.bin and .idx");
  train::PreprocessOptions& options = flags.options;
  verb->add_option("INPUT", options.inputs, "Text files (a document each), .jsonl files, folders, or - for stdin");
  verb->add_option("--input", flags.input, "One input, as INPUT takes it");
  verb->add_option("--output-prefix", options.output_prefix, "Beginning of the names of what is written")->required();
  verb->add_option("--json-keys", options.json_keys, "Keys of the JSON objects; a data set each")
      ->capture_default_str();
  verb->add_option("--format", flags.format,
                   "auto (.jsonl, .json and stdin are JSON lines), text, jsonl, or paths: INPUT lists paths")
      ->capture_default_str();
  verb->add_option("--glob", options.globs, "Which files of a folder, at any depth")->capture_default_str();
  add_tokenizer(*verb, options.tokenizer);
  verb->add_flag("--append-eod", options.append_eod, "End each document with the end-of-document token");
  verb->add_flag(
      "--skip-bad-lines", options.skip_bad_lines,
      "Leave out lines that are not JSON, lack a key or hold no text in it, and say how many (a bad line ends "
      "the work and nothing is kept)");
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
  InspectFlags inspect_flags;
  auto* inspect_verb = add_inspect(app, inspect_flags);
  auto* entropy = app.add_subcommand("entropy", "Unigram entropy alone, in nats per token, a line a data set");
  entropy->add_option("PREFIX", prefixes, "Data sets, without .bin; - reads them from stdin")->required();
  if (!tools::parse(app, args)) return 0;
  if (app.got_subcommand(inspect_verb)) {
    for (const char* flag : {"--tokenizer-type", "--tokenizer-model", "--vocab-file"}) {
      inspect_flags.with_tokenizer |= inspect_verb->count(flag) > 0;
    }
    return run_inspect(inspect_flags);
  }
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
