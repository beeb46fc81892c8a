#include "train/data/preprocess.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <iomanip>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/data/detail/input_reader.h"
#include "train/data/detail/unicode.h"
#include "train/data/statistics.h"
#include "train/data/tokenizer.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxTextBytes = int64_t{1} << 40;

// Tokenized documents of one key.
struct EncodedKey {
  std::vector<int32_t> tokens;
  std::vector<int64_t> sequences;  // lengths
  std::vector<size_t> documents;   // number of sequences of each document
};
struct Encoded {
  std::vector<EncodedKey> keys;
  int64_t input_bytes = 0;
  int64_t malformed = 0;
  int64_t skipped_lines = 0;
  std::string first_skipped_line;
};

// State of one worker thread.
struct Worker {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::vector<int64_t>> counts;  // [key][token]
};

class Encoder {
 public:
  Encoder(const PreprocessOptions& options, std::optional<int32_t> eod) : options_(options), eod_(eod) {}

  Encoded encode(const detail::InputBatch& batch, Worker& worker) const {
    Encoded out;
    out.keys.resize(options_.json_keys.size());
    out.input_bytes = batch.size_bytes;
    if (batch.text) add(*batch.text, 0, worker, out);
    for (const std::string& path : batch.text_files) add(core::read_text(path, kMaxTextBytes), 0, worker, out);
    int64_t line = batch.first_line;
    for (size_t at = 0; at < batch.lines.size(); ++line) {
      const size_t end = std::min(batch.lines.find('\n', at), batch.lines.size());
      add_line(std::string_view(batch.lines).substr(at, end - at), batch.source, line, worker, out);
      at = end + 1;
    }
    for (size_t k = 0; k < out.keys.size(); ++k) {
      for (const int32_t token : out.keys[k].tokens) ++worker.counts[k][static_cast<size_t>(token)];
    }
    return out;
  }

 private:
  // Adds a document of sentences, each of which becomes a sequence. As in Megatron, sentences without tokens are
  // dropped, and a document without any gets no end-of-document token. (An empty text may have tokens: those that the
  // tokenizer adds around it.)
  void add(std::span<const std::string_view> sentences, size_t key, Worker& worker, Encoded& out) const {
    EncodedKey& to = out.keys[key];
    size_t sequences = 0;
    bool malformed = false;
    for (const std::string_view sentence : sentences) {
      malformed |= detail::find_malformed_utf8(sentence) != sentence.size();
      const size_t before = to.tokens.size();
      worker.tokenizer->encode(sentence, to.tokens);
      if (to.tokens.size() == before) continue;
      to.sequences.push_back(static_cast<int64_t>(to.tokens.size() - before));
      ++sequences;
    }
    if (eod_ && sequences > 0) {
      to.tokens.push_back(*eod_);
      ++to.sequences.back();
    }
    to.documents.push_back(sequences);
    out.malformed += malformed ? 1 : 0;
  }
  void add(std::string_view text, size_t key, Worker& worker, Encoded& out) const { add({&text, 1}, key, worker, out); }

  // Like add_json; with --skip-bad-lines a line that is not a document of every key is only counted.
  void add_line(std::string_view line, const std::string& source, int64_t number, Worker& worker, Encoded& out) const {
    if (!options_.skip_bad_lines) return add_json(line, source, number, worker, out);
    struct Sizes {
      size_t tokens, sequences, documents;
    };
    std::vector<Sizes> before;
    for (const EncodedKey& key : out.keys)
      before.push_back({key.tokens.size(), key.sequences.size(), key.documents.size()});
    const int64_t malformed_before = out.malformed;
    try {
      add_json(line, source, number, worker, out);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCorruptData) throw;
      for (size_t k = 0; k < before.size(); ++k) {
        out.keys[k].tokens.resize(before[k].tokens);
        out.keys[k].sequences.resize(before[k].sequences);
        out.keys[k].documents.resize(before[k].documents);
      }
      out.malformed = malformed_before;
      if (out.skipped_lines++ == 0) out.first_skipped_line = e.what();
    }
  }

  void add_json(std::string_view line, const std::string& source, int64_t number, Worker& worker, Encoded& out) const {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const auto fail = [&](const std::string& what) {
      throw Error(ErrorCode::kCorruptData, cat(source, ":", number, ": ", what));
    };
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(line);
    } catch (const nlohmann::json::exception& e) {
      fail(cat("not JSON: ", e.what(), ". Plain text is read with --format text"));
    }
    if (!object.is_object()) fail(cat("expected a JSON object, found a ", object.type_name()));
    for (size_t k = 0; k < options_.json_keys.size(); ++k) {
      const auto value = object.find(options_.json_keys[k]);
      if (value == object.end()) fail(cat("no key \"", options_.json_keys[k], "\". Name the keys with --json-keys"));
      const auto text_of = [&](const nlohmann::json& text) -> std::string_view {
        if (text.is_string()) return text.get_ref<const std::string&>();
        fail(cat("\"", options_.json_keys[k], "\" ", value->is_array() ? "holds " : "is ",
                 text.is_array() || text.is_object() ? "an "
                 : text.is_null()                    ? ""
                                                     : "a ",
                 text.type_name(), ", expected a string or a list of strings"));
        return {};
      };
      std::vector<std::string_view> sentences;
      if (value->is_array()) {
        for (const nlohmann::json& sentence : *value) sentences.push_back(text_of(sentence));
      } else {
        sentences.push_back(text_of(*value));
      }
      add(sentences, k, worker, out);
    }
  }

  const PreprocessOptions& options_;
  std::optional<int32_t> eod_;
};

// Threads that run tasks in the order of submission. The destructor drops tasks that have not started.
class WorkerPool {
 public:
  using Task = std::packaged_task<Encoded(Worker&)>;

  explicit WorkerPool(std::vector<Worker>& workers) {
    for (Worker& worker : workers) threads_.emplace_back([this, &worker] { run(worker); });
  }
  ~WorkerPool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      tasks_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  std::future<Encoded> submit(Task task) {
    std::future<Encoded> result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
    return result;
  }

 private:
  void run(Worker& worker) {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task(worker);
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

class Progress {
 public:
  explicit Progress(int64_t total_bytes) : total_bytes_(total_bytes) {}
  ~Progress() { core::log_progress(""); }

  void show(int64_t documents, int64_t bytes) {
    const auto now = Clock::now();
    if (now - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    std::ostringstream line;
    line << std::fixed << std::setprecision(1) << "preprocess: " << documents << " documents, "
         << static_cast<double>(bytes) / 1e6 << " MB";
    if (total_bytes_ > 0) {
      line << " (" << 100.0 * static_cast<double>(bytes) / static_cast<double>(total_bytes_) << " %)";
    }
    line << ", " << static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-3) << " MB/s";
    core::log_progress(line.str());
  }

 private:
  int64_t total_bytes_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
};

void check(const PreprocessOptions& options) {
  if (options.inputs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no input: give files, folders, or - for stdin");
  }
  if (options.output_prefix.empty()) throw Error(ErrorCode::kInvalidArgument, "--output-prefix is missing");
  if (options.workers < 0 || options.workers > 4096) {
    throw Error(ErrorCode::kInvalidArgument, cat("--workers ", options.workers, ": expected 1 to 4096, or 0"));
  }
  if (options.json_keys.empty()) throw Error(ErrorCode::kInvalidArgument, "--json-keys names no key");
  for (size_t i = 0; i < options.json_keys.size(); ++i) {
    const auto rest = options.json_keys.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (std::find(rest, options.json_keys.end(), options.json_keys[i]) != options.json_keys.end()) {
      throw Error(ErrorCode::kInvalidArgument, cat("--json-keys names \"", options.json_keys[i], "\" twice"));
    }
  }
}

// Creates the folder of the output if it does not exist.
void make_folder_of(const std::string& output_prefix) {
  const std::filesystem::path folder = std::filesystem::path(output_prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::kIo, cat("--output-prefix ", output_prefix, ": cannot make the folder ", folder.string(),
                                    ": ", error.message()));
  }
}

}  // namespace

InputFormat parse_input_format(std::string_view text) {
  if (text == "auto") return InputFormat::kAuto;
  if (text == "text") return InputFormat::kText;
  if (text == "jsonl") return InputFormat::kJsonl;
  core::require_one_of("--format", text, {"auto", "text", "jsonl", "paths"});
  return InputFormat::kPaths;
}

PreprocessResult plan_preprocess(const PreprocessOptions& options) {
  check(options);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  if (options.append_eod) require_eod(*tokenizer, options.tokenizer, "--append-eod");
  PreprocessResult plan;
  plan.files = detail::list_files(options);
  for (const std::string& file : plan.files) {
    std::error_code error;
    const auto size = file == "-" ? 0 : std::filesystem::file_size(file, error);
    if (!error) plan.input_bytes += static_cast<int64_t>(size);
  }
  for (const std::string& key : options.json_keys) {
    plan.sets.push_back({key, cat(options.output_prefix, "_", key, "_document"),
                         token_type_for_vocab(tokenizer->vocab_size()), 0, 0, 0.0});
  }
  return plan;
}

PreprocessResult preprocess(const PreprocessOptions& options, const std::function<bool()>& stopped) {
  const auto begin = Clock::now();
  PreprocessResult result = plan_preprocess(options);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const int threads = options.workers > 0 ? options.workers : std::max(1U, std::thread::hardware_concurrency());
  const size_t keys = result.sets.size();
  const auto vocab = static_cast<size_t>(tokenizer->vocab_size());
  std::vector<Worker> workers(static_cast<size_t>(threads));
  for (Worker& worker : workers) {
    worker = {tokenizer->fork(), std::vector(keys, std::vector<int64_t>(vocab, 0))};
  }
  make_folder_of(options.output_prefix);
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders;
  for (const PreprocessedSet& set : result.sets) {
    builders.push_back(std::make_unique<IndexedDatasetBuilder>(set.prefix, set.token_type));
  }
  const Encoder encoder(options, options.append_eod ? tokenizer->eod() : std::nullopt);
  const InputFormat format = options.format == InputFormat::kPaths ? InputFormat::kAuto : options.format;
  detail::InputReader reader(result.files, format, stopped);
  Progress progress(result.input_bytes);
  int64_t bytes = 0;

  const auto write = [&](const Encoded& encoded) {
    bytes += encoded.input_bytes;
    result.malformed_documents += encoded.malformed;
    if (result.skipped_lines == 0) result.first_skipped_line = encoded.first_skipped_line;
    result.skipped_lines += encoded.skipped_lines;
    for (size_t k = 0; k < keys; ++k) {
      std::span<const int32_t> tokens = encoded.keys[k].tokens;
      std::span<const int64_t> sequences = encoded.keys[k].sequences;
      for (const size_t count : encoded.keys[k].documents) {
        const std::span<const int64_t> lengths = sequences.first(count);
        const auto size = static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
        builders[k]->add_document(tokens.first(size), lengths);
        result.empty_documents += count == 0 ? 1 : 0;
        tokens = tokens.subspan(size);
        sequences = sequences.subspan(count);
      }
    }
    progress.show(builders[0]->num_documents(), bytes);
  };
  {
    WorkerPool pool(workers);
    std::deque<std::future<Encoded>> running;
    const size_t most_running = 2 * workers.size() + 2;
    while (auto batch = reader.next()) {
      if (running.size() == most_running) {
        write(running.front().get());
        running.pop_front();
      }
      running.push_back(pool.submit(WorkerPool::Task(
          [&encoder, taken = std::move(*batch)](Worker& worker) { return encoder.encode(taken, worker); })));
    }
    for (; !running.empty() && !stopped(); running.pop_front()) write(running.front().get());
  }
  if (stopped()) throw Error(ErrorCode::kIo, "stopped by a signal; nothing was written");
  for (size_t k = 0; k < keys; ++k) {
    builders[k]->finalize();
    std::vector<int64_t> counts(vocab, 0);
    for (const Worker& worker : workers) {
      for (size_t token = 0; token < vocab; ++token) counts[token] += worker.counts[k][token];
    }
    result.sets[k].documents = builders[k]->num_documents();
    result.sets[k].tokens = builders[k]->num_tokens();
    result.sets[k].unigram_entropy = entropy_nats(counts);
  }
  result.input_bytes = bytes;
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

}  // namespace ms::train
